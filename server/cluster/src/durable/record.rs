//! A value as bytes, with a checksum that covers what it is kept under.

use serde::{Serialize, de::DeserializeOwned};

use crate::calls::decode;

/// As bytes. The same bytes under another name are no record.
pub(super) fn seal(name: &[u8], value: &impl Serialize) -> Result<Vec<u8>, String> {
    let bytes = postcard::to_extend(value, vec![0; size_of::<u32>()]);
    let mut bytes = bytes.map_err(|error| format!("it cannot be written as bytes: {error}"))?;
    if let Some((head, body)) = bytes.split_first_chunk_mut() {
        *head = checksum(name, body);
    }
    Ok(bytes)
}

/// From bytes.
pub(super) fn unseal<T: DeserializeOwned>(name: &[u8], bytes: &[u8]) -> Result<T, String> {
    let (head, body) = bytes.split_first_chunk().ok_or("it is cut short")?;
    if *head != checksum(name, body) {
        return Err("its checksum does not match".to_owned());
    }
    decode(body)
}

fn checksum(name: &[u8], body: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(name);
    hasher.update(body);
    hasher.finalize().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_read_and_nothing_else_is() {
        let value = (7_u64, "text".to_owned());
        let bytes = seal(b"name", &value).unwrap();
        assert_eq!(unseal::<(u64, String)>(b"name", &bytes).unwrap(), value);
        assert!(unseal::<(u64, String)>(b"other", &bytes).is_err());
        for at in 0..bytes.len() {
            assert!(unseal::<(u64, String)>(b"name", &bytes[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(unseal::<(u64, String)>(b"name", &flipped).is_err(), "bit {bit} of byte {at}");
            }
        }
    }
}
