//! Compaction of a stretch of a log. Batches that lose nothing are copied as they are; the others
//! keep their offsets, their producer and its sequences.

use std::collections::BTreeMap;

use crate::batch::{
    next_whole, Header, Whole, CONTROL, DELETE_HORIZON, HEADER_BYTES, LOG_APPEND_TIME,
};
use crate::compression;
use crate::fault::Fault;
use crate::keymap::Table;
use crate::record::Record;
use crate::transactions::Tracker;
use crate::varint::{self, Cursor};

const NO_TIMESTAMP: i64 = -1;
const KEPT_WHEN_EMPTY: i16 = LOG_APPEND_TIME | crate::batch::TRANSACTIONAL | CONTROL;

/// An index entry that is due: position, last offset, largest timestamp so far, its offset.
pub type Point = (usize, i64, i64, i64);

struct Rules {
    now_ms: i64,
    delete_retention_ms: i64,
    upper_bound: i64,
    producers: BTreeMap<i64, (i64, i16)>, // last offset of data, epoch
}

/// One record that stays, and where it is in the payload.
struct Kept {
    start: usize,
    end: usize,
    timestamp: i64,
}

#[derive(Default)]
pub struct Counts {
    pub records_read: u64,
    pub records_kept: u64,
    pub keyless: u64,
}

/// The segment that is being written, for its indexes.
struct Written {
    interval_bytes: usize,
    since_index: usize,
    bytes: usize,
    max_timestamp: i64,
    offset_of_max_timestamp: i64,
    points: Vec<Point>,
}

impl Written {
    fn new(base_offset: i64, interval_bytes: usize) -> Self {
        Self {
            interval_bytes,
            since_index: 0,
            bytes: 0,
            max_timestamp: NO_TIMESTAMP,
            offset_of_max_timestamp: base_offset,
            points: Vec::new(),
        }
    }

    fn note(&mut self, size: usize, last_offset: i64, max_timestamp: i64) {
        if max_timestamp > self.max_timestamp {
            self.max_timestamp = max_timestamp;
            self.offset_of_max_timestamp = last_offset;
        }
        if self.since_index > self.interval_bytes {
            self.points.push((
                self.bytes,
                last_offset,
                self.max_timestamp,
                self.offset_of_max_timestamp,
            ));
            self.since_index = 0;
        }
        self.since_index += size;
        self.bytes += size;
    }
}

/// Goes through a stretch of a log and writes what stays.
pub struct Retainer {
    rules: Rules,
    counts: Counts,
    written: Written,
}

impl Rules {
    /// The batch that has a producer's last sequence must stay, and that which says where the round
    /// ended, even if they are empty.
    fn stays_when_empty(&self, header: &Header) -> bool {
        if header.last_offset().wrapping_add(1) == self.upper_bound {
            return true;
        }
        match self.producers.get(&header.producer_id) {
            Some((last, _)) if *last >= 0 => header.last_offset() == *last,
            // It has sent nothing but the end of a transaction, which has its epoch.
            Some((_, epoch)) => header.has(CONTROL) && header.producer_epoch == *epoch,
            None => false,
        }
    }

    fn horizon_passed(&self, header: &Header) -> bool {
        header.has(DELETE_HORIZON) && header.base_timestamp <= self.now_ms
    }

    fn keeps(&self, header: &Header, record: &Record<'_>, keys: &Table) -> bool {
        let offset = header.offset_of(record);
        if offset > keys.latest_offset {
            return true;
        }
        let Some(key) = record.key else {
            return false;
        };
        offset >= keys.get(key) && (record.value.is_some() || !self.horizon_passed(header))
    }
}

/// The position of the offset delta in the record that begins at `start`.
fn after_timestamp(payload: &[u8], start: usize) -> usize {
    let mut cursor = Cursor {
        bytes: payload,
        at: start,
    };
    // The record was read once already.
    let _ = cursor.varint();
    let _ = cursor.byte();
    let _ = cursor.varlong();
    cursor.at
}

fn write_empty(out: &mut Vec<u8>, header: &Header) {
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    let header = Header {
        attributes: header.attributes & KEPT_WHEN_EMPTY,
        base_timestamp: NO_TIMESTAMP,
        count: 0,
        ..*header
    };
    header.seal(&mut out[start..]);
}

/// The batch with nothing but these records; gives its largest timestamp.
fn write_kept(
    out: &mut Vec<u8>,
    batch: &Whole<'_>,
    payload: &[u8],
    kept: &[Kept],
    horizon: Option<i64>,
) -> Result<i64, Fault> {
    let header = &batch.header;
    let base_timestamp = horizon.unwrap_or(kept[0].timestamp);
    let newest = kept.iter().map(|record| record.timestamp).max();
    let max_timestamp = match header.has(LOG_APPEND_TIME) {
        true => header.max_timestamp,
        false => newest.unwrap_or(NO_TIMESTAMP).max(NO_TIMESTAMP),
    };
    let mut records = Vec::with_capacity(payload.len() + 8 * kept.len());
    for record in kept {
        if base_timestamp == header.base_timestamp {
            records.extend_from_slice(&payload[record.start..record.end]);
            continue;
        }
        let delta = record.timestamp.wrapping_sub(base_timestamp);
        let rest = &payload[after_timestamp(payload, record.start)..record.end];
        varint::write(&mut records, (1 + varint::size(delta) + rest.len()) as i64);
        records.push(0); // attributes, of which there are none
        varint::write(&mut records, delta);
        records.extend_from_slice(rest);
    }
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    compression::compress_into(out, header.codec(), &records, None)
        .map_err(|reason| Fault::new(reason, batch.position))?;
    if out.len() - start > i32::MAX as usize {
        return Err(Fault::too_large(batch.position));
    }
    let attributes = match horizon {
        Some(_) => header.attributes | DELETE_HORIZON,
        None => header.attributes,
    };
    let header = Header {
        attributes,
        base_timestamp,
        max_timestamp,
        count: kept.len() as i32,
        ..*header
    };
    header.seal(&mut out[start..]);
    Ok(max_timestamp)
}

impl Retainer {
    /// `producers` has, by id, the last offset of a producer's data and its epoch.
    pub fn new(
        now_ms: i64,
        delete_retention_ms: i64,
        upper_bound: i64,
        producers: BTreeMap<i64, (i64, i16)>,
    ) -> Self {
        Self {
            rules: Rules {
                now_ms,
                delete_retention_ms,
                upper_bound,
                producers,
            },
            counts: Counts::default(),
            written: Written::new(0, 0),
        }
    }

    /// Begins a new segment.
    pub fn begin(&mut self, base_offset: i64, index_interval_bytes: usize) {
        self.written = Written::new(base_offset, index_interval_bytes);
    }

    /// Takes the index entries that became due since the last call.
    pub fn take_points(&mut self) -> Vec<Point> {
        std::mem::take(&mut self.written.points)
    }

    pub fn max_timestamp(&self) -> i64 {
        self.written.max_timestamp
    }

    pub fn offset_of_max_timestamp(&self) -> i64 {
        self.written.offset_of_max_timestamp
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Gives how many bytes of whole batches were read, and what is left of them.
    pub fn retain(
        &mut self,
        data: &[u8],
        keys: &Table,
        transactions: &mut Tracker,
    ) -> Result<(usize, Vec<u8>), Fault> {
        let mut out = Vec::with_capacity(data.len());
        let mut at = 0;
        while let Some(batch) = next_whole(data, at)? {
            // A batch is never given a new checksum over bytes that do not fit the old one.
            batch.check_crc()?;
            self.batch(&mut out, &batch, keys, transactions)?;
            at += batch.bytes.len();
        }
        Ok((at, out))
    }

    fn batch(
        &mut self,
        out: &mut Vec<u8>,
        batch: &Whole<'_>,
        keys: &Table,
        transactions: &mut Tracker,
    ) -> Result<(), Fault> {
        let header = &batch.header;
        let start = out.len();
        let is_control = header.has(CONTROL);
        let can_discard = transactions.can_discard(batch)?;
        let discards = can_discard && (!is_control || self.rules.horizon_passed(header));
        self.counts.records_read += header.count.max(0) as u64;
        let mut max_timestamp = header.max_timestamp;
        let mut kept = Vec::new();
        let mut has_tombstones = false;
        let payload = match discards {
            true => Default::default(),
            false => batch.payload(0)?,
        };
        if !discards {
            let mut end = 0;
            let mut cursor = Cursor::new(&payload);
            batch.for_each_record::<Fault>(&payload, |_, record| {
                let start = end;
                cursor.at = start;
                let length = cursor.varint().unwrap_or(0);
                end = cursor.at + length.max(0) as usize;
                if is_control || self.rules.keeps(header, &record, keys) {
                    has_tombstones |= record.value.is_none();
                    kept.push(Kept {
                        start,
                        end,
                        timestamp: header.timestamp_of(&record),
                    });
                } else if record.key.is_none() {
                    self.counts.keyless += 1;
                }
                Ok(())
            })?;
        }
        if kept.is_empty() {
            if !self.rules.stays_when_empty(header) {
                return Ok(());
            }
            write_empty(out, header);
        } else {
            let marks =
                (has_tombstones || (can_discard && is_control)) && !header.has(DELETE_HORIZON);
            if kept.len() == header.count as usize && !marks {
                out.extend_from_slice(batch.bytes);
            } else {
                let horizon = match (marks, header.has(DELETE_HORIZON)) {
                    (true, _) => Some(
                        self.rules
                            .now_ms
                            .saturating_add(self.rules.delete_retention_ms),
                    ),
                    (false, true) => Some(header.base_timestamp),
                    (false, false) => None,
                };
                max_timestamp = write_kept(out, batch, &payload, &kept, horizon)?;
            }
        }
        self.counts.records_kept += kept.len() as u64;
        self.written
            .note(out.len() - start, header.last_offset(), max_timestamp);
        Ok(())
    }
}
