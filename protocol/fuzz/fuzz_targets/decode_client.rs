#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| ticketing_protocol_fuzz::decode_client(data));
