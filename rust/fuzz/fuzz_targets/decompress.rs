//! Compressed bytes of any codec: refused or decompressed, never beyond the bound.
#![no_main]

use headwater_records::compression::decompress;
use libfuzzer_sys::fuzz_target;

const OUTPUT_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((codec, rest)) = data.split_first() else {
        return;
    };
    if let Ok(out) = decompress(codec % 5, rest, OUTPUT_BYTES_MAX) {
        assert!(out.len() <= OUTPUT_BYTES_MAX);
    }
});
