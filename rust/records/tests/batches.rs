//! Batches come back as they were written, and no bytes make a reader panic.

mod common;

use common::{batch, plain, Chance, Row};
use headwater_records::batch::{next_whole, seal_checksum, whole, Header, HEADER_BYTES};
use headwater_records::compression;
use headwater_records::fault::Fault;
use headwater_records::validate::{validate, Rules};

const CODECS: [u8; 5] = [
    compression::NONE,
    compression::GZIP,
    compression::SNAPPY,
    compression::LZ4,
    compression::ZSTD,
];
const ANY: Rules = Rules {
    timestamp_min: i64::MIN,
    timestamp_max: i64::MAX,
    keys_required: false,
    output_bytes_max: 1 << 20,
};

type Owned = (Option<Vec<u8>>, Option<Vec<u8>>, i64);

fn read(data: &[u8]) -> Result<Vec<Owned>, Fault> {
    let found = whole(data, 0)?;
    found.check_crc()?;
    let payload = found.payload(1 << 20)?;
    let mut rows = Vec::new();
    found.for_each_record::<Fault>(&payload, |_, record| {
        let timestamp = found.header.timestamp_of(&record);
        rows.push((
            record.key.map(<[u8]>::to_vec),
            record.value.map(<[u8]>::to_vec),
            timestamp,
        ));
        Ok(())
    })?;
    Ok(rows)
}

fn rows(chance: &mut Chance, memory: &[u8]) -> Vec<(usize, usize, i64)> {
    (0..1 + chance.below(20))
        .map(|_| {
            let start = chance.below(memory.len());
            let end = start + chance.below(memory.len() - start);
            (start, end, chance.below(1 << 40) as i64)
        })
        .collect()
}

#[test]
fn a_batch_comes_back_as_it_was_written_under_every_codec() {
    let memory: Vec<u8> = (0..4096_u32).map(|number| (number % 251) as u8).collect();
    let mut chance = Chance(7);
    for round in 0..200 {
        let drawn = rows(&mut chance, &memory);
        let given: Vec<Row<'_>> = drawn
            .iter()
            .map(|&(start, end, timestamp)| {
                let bytes = &memory[start..end];
                (
                    (end % 3 > 0).then_some(bytes),
                    (end % 5 > 0).then_some(bytes),
                    timestamp,
                )
            })
            .collect();
        let bytes = batch(&given, CODECS[round % CODECS.len()], Header::default());
        let expected: Vec<Owned> = given
            .iter()
            .map(|(key, value, at)| (key.map(<[u8]>::to_vec), value.map(<[u8]>::to_vec), *at))
            .collect();
        assert_eq!(read(&bytes).unwrap(), expected, "round {round}");
        assert!(validate(&bytes, 0, &ANY).is_ok());
    }
}

#[test]
fn a_changed_bit_is_found() {
    let bytes = plain(
        5,
        &[(Some(b"key"), Some(b"value"), 1), (None, Some(b"more"), 2)],
    );
    for at in 16..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            assert!(validate(&changed, 0, &ANY).is_err(), "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn a_batch_that_is_cut_short_is_told_from_one_that_is_broken() {
    let bytes = plain(0, &[(Some(b"key"), Some(b"value"), 1)]);
    for end in 0..bytes.len() {
        assert!(next_whole(&bytes[..end], 0).unwrap().is_none(), "{end}");
    }
    let mut old = bytes.clone();
    old[16] = 1;
    assert_eq!(whole(&old, 0).err().unwrap().reason, "magic 1");
    let mut short = bytes;
    short[8..12].copy_from_slice(&3_i32.to_be_bytes());
    assert_eq!(whole(&short, 0).err().unwrap().reason, "length");
}

/// A hostile producer can seal anything: the checksum protects from accidents only.
#[test]
fn hostile_bytes_under_a_good_checksum_are_refused_without_a_panic() {
    let mut chance = Chance(42);
    let seeds: Vec<Vec<u8>> = CODECS
        .iter()
        .map(|&codec| {
            let given: [Row<'_>; 3] = [
                (Some(b"alpha"), Some(&[7; 300]), 10),
                (None, None, 11),
                (Some(b""), Some(b"x"), 9),
            ];
            batch(&given, codec, Header::default())
        })
        .collect();
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut bytes = seeds[chance.below(seeds.len())].clone();
        for _ in 0..1 + chance.below(6) {
            let at = 17 + chance.below(bytes.len() - 17);
            bytes[at] = chance.next() as u8;
        }
        if chance.below(4) == 0 {
            let end = HEADER_BYTES + chance.below(bytes.len() - HEADER_BYTES);
            bytes.truncate(end);
            let length = (bytes.len() - 12) as i32;
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
        }
        seal_checksum(&mut bytes);
        refused += validate(&bytes, 0, &ANY).is_err() as u32;
    }
    assert!(refused > 10_000, "{refused}");
}

#[test]
fn decompression_stops_at_its_bound() {
    let zeros = vec![0; 1 << 20];
    for codec in &CODECS[1..] {
        let bytes = batch(&[(None, Some(&zeros), 0)], *codec, Header::default());
        let found = whole(&bytes, 0).unwrap();
        assert!(found.payload(1 << 16).unwrap_err().too_large, "{codec}");
        assert!(found.payload(2 << 20).is_ok(), "{codec}");
    }
}
