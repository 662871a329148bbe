//! A stretch of a log through a round of compaction; what is left must be readable.
#![no_main]

use std::collections::BTreeMap;

use headwater_records::batch::{next_whole, seal_checksum, whole};
use headwater_records::keymap::Table;
use headwater_records::retain::Retainer;
use headwater_records::transactions::Tracker;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut log = data.to_vec();
    let mut at = 0;
    while let Ok(size) = whole(&log, at).map(|batch| batch.bytes.len()) {
        seal_checksum(&mut log[at..at + size]);
        at += size;
    }
    let mut keys = Table::new(1 << 12, 0.9).expect("room for keys");
    if keys.learn(&log, 0, &mut Tracker::new(vec![])).is_err() {
        return;
    }
    let mut retainer = Retainer::new(1, 1, keys.latest_offset.wrapping_add(1), BTreeMap::new());
    if let Ok((_, out)) = retainer.retain(&log, &keys, &mut Tracker::new(vec![])) {
        let mut at = 0;
        while let Some(batch) = next_whole(&out, at).expect("a readable batch") {
            batch.check_crc().expect("a good checksum");
            at += batch.bytes.len();
        }
        assert_eq!(at, out.len());
    }
});
