//! The applied state, its records and its snapshots.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod records;
mod rules;
mod snapshots;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}
