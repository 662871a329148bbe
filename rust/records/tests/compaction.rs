//! Compaction keeps the last record of each key, and every offset that others lean on.

mod common;

use std::collections::{BTreeMap, HashMap};

use common::{plain, Chance, Row};
use headwater_records::batch::{next_whole, Header};
use headwater_records::fault::Fault;
use headwater_records::keymap::Table;
use headwater_records::retain::Retainer;
use headwater_records::transactions::Tracker;

fn compact(log: &[u8], now_ms: i64) -> Vec<u8> {
    let mut keys = Table::new(1 << 20, 0.9).unwrap();
    let (read, full) = keys.learn(log, 0, &mut Tracker::new(vec![])).unwrap();
    assert_eq!((read, full), (log.len(), false));
    let mut retainer = Retainer::new(now_ms, 1000, keys.latest_offset + 1, BTreeMap::new());
    retainer.begin(0, 4096);
    let (read, out) = retainer
        .retain(log, &keys, &mut Tracker::new(vec![]))
        .unwrap();
    assert_eq!(read, log.len());
    out
}

fn records(log: &[u8]) -> Vec<(i64, Vec<u8>, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(batch) = next_whole(log, at).unwrap() {
        batch.check_crc().unwrap();
        let payload = batch.payload(0).unwrap();
        batch
            .for_each_record::<Fault>(&payload, |_, record| {
                found.push((
                    batch.header.offset_of(&record),
                    record.key.unwrap().to_vec(),
                    record.value.map(<[u8]>::to_vec),
                ));
                Ok(())
            })
            .unwrap();
        at += batch.bytes.len();
    }
    assert_eq!(at, log.len());
    found
}

#[test]
fn the_last_value_of_each_key_stays_at_its_offset() {
    let mut chance = Chance(3);
    for round in 0..100 {
        let mut log = Vec::new();
        let mut latest = HashMap::new();
        let mut offset = 0;
        for _ in 0..1 + chance.below(30) {
            let names: Vec<Vec<u8>> = (0..1 + chance.below(5))
                .map(|_| format!("key-{}", chance.below(12)).into_bytes())
                .collect();
            let rows: Vec<Row<'_>> = names
                .iter()
                .map(|name| (Some(&name[..]), Some(&name[..]), offset))
                .collect();
            log.extend(plain(offset, &rows));
            for name in &names {
                latest.insert(name.clone(), offset);
                offset += 1;
            }
        }
        let kept = records(&compact(&log, 0));
        let expected: HashMap<_, _> = kept.iter().map(|(at, key, _)| (key.clone(), *at)).collect();
        assert_eq!(expected, latest, "round {round}");
        assert_eq!(kept.len(), latest.len(), "round {round}");
    }
}

#[test]
fn a_tombstone_stays_until_its_time_has_passed() {
    let mut log = plain(
        0,
        &[
            (Some(b"gone"), Some(b"value"), 1),
            (Some(b"here"), Some(b"v"), 1),
        ],
    );
    log.extend(plain(2, &[(Some(b"gone"), None, 2)]));
    let first = compact(&log, 10_000);
    let gone = (2, b"gone".to_vec(), None);
    assert!(records(&first).contains(&gone));
    assert!(records(&compact(&first, 10_500)).contains(&gone));
    assert!(!records(&compact(&first, 11_000)).contains(&gone));
}

#[test]
fn the_end_of_the_round_keeps_its_offset_though_nothing_is_left_there() {
    let mut log = plain(0, &[(Some(b"a"), Some(b"1"), 1)]);
    log.extend(plain(1, &[(Some(b"a"), None, 1)]));
    let twice = compact(&compact(&log, 0), 5_000);
    let last = next_whole(&twice, 0).unwrap().unwrap();
    let Header { count, .. } = last.header;
    assert_eq!((last.header.last_offset(), count), (1, 0));
}

#[test]
fn a_batch_with_a_bad_checksum_is_not_given_a_new_one() {
    let mut log = plain(0, &[(Some(b"a"), Some(b"1"), 1)]);
    let end = log.len() - 1;
    log[end] ^= 1;
    let keys = Table::new(1 << 10, 0.9).unwrap();
    let mut retainer = Retainer::new(0, 0, 1, BTreeMap::new());
    let fault = retainer
        .retain(&log, &keys, &mut Tracker::new(vec![]))
        .unwrap_err();
    assert_eq!(fault.reason, "crc");
}
