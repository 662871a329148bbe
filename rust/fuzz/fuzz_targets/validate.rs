//! A produced batch, with its checksum made good: a hostile producer can do as much.
#![no_main]

use headwater_records::batch::{seal_checksum, whole};
use headwater_records::validate::{validate, Rules};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    let Ok(size) = whole(&bytes, 0).map(|batch| batch.bytes.len()) else {
        return;
    };
    seal_checksum(&mut bytes[..size]);
    let rules = Rules {
        timestamp_min: 0,
        timestamp_max: i64::MAX,
        keys_required: true,
        output_bytes_max: 1 << 20,
    };
    let _ = validate(&bytes, 0, &rules);
});
