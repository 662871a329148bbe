//! Tracks aborted transactions while a log is read from its start: which batches they own, and
//! which markers are still needed.

use std::collections::{BTreeMap, BTreeSet};

use crate::batch::{Whole, CONTROL, TRANSACTIONAL};
use crate::fault::Fault;

const ABORT: i16 = 0;
const COMMIT: i16 = 1;

/// Producer id, first offset, offset of the marker, last stable offset when it came.
pub type Aborted = (i64, i64, i64, i64);

struct Undone {
    aborted: Aborted,
    has_batches: bool,
}

pub struct Tracker {
    ahead: Vec<Aborted>, // by first offset, the next one last
    undone: BTreeMap<i64, Undone>,
    committed: BTreeSet<i64>,
    still_needed: Vec<Aborted>,
}

impl Tracker {
    pub fn new(mut aborted: Vec<Aborted>) -> Self {
        aborted.sort_unstable_by_key(|transaction| std::cmp::Reverse(transaction.1));
        Self {
            ahead: aborted,
            undone: BTreeMap::new(),
            committed: BTreeSet::new(),
            still_needed: Vec::new(),
        }
    }

    /// Takes the aborted transactions that read_committed readers still have to skip.
    pub fn take_needed(&mut self) -> Vec<Aborted> {
        std::mem::take(&mut self.still_needed)
    }

    fn advance(&mut self, offset: i64) {
        while self.ahead.last().is_some_and(|next| next.1 <= offset) {
            let Some(aborted) = self.ahead.pop() else {
                break;
            };
            self.undone.entry(aborted.0).or_insert(Undone {
                aborted,
                has_batches: false,
            });
        }
    }

    /// Returns whether the records of the batch can be discarded: data of an aborted transaction, or
    /// a marker of a transaction of which nothing is left.
    pub fn can_discard(&mut self, batch: &Whole<'_>) -> Result<bool, Fault> {
        let header = &batch.header;
        self.advance(header.last_offset());
        if header.has(CONTROL) {
            return self.can_discard_marker(batch);
        }
        if !header.has(TRANSACTIONAL) {
            return Ok(false);
        }
        match self.undone.get_mut(&header.producer_id) {
            Some(transaction) => {
                transaction.has_batches = true;
                Ok(true)
            }
            None => {
                self.committed.insert(header.producer_id);
                Ok(false)
            }
        }
    }

    /// Returns whether the keys in the batch do not count: it was aborted, or is a marker.
    pub fn is_undone(&mut self, batch: &Whole<'_>) -> Result<bool, Fault> {
        Ok(self.can_discard(batch)? || batch.header.has(CONTROL))
    }

    fn can_discard_marker(&mut self, batch: &Whole<'_>) -> Result<bool, Fault> {
        let mut kind = None;
        let payload = batch.payload(0)?;
        batch.for_each_record::<Fault>(&payload, |index, record| {
            if index == 0 {
                kind = record.key.and_then(|key| key.get(2..4)).map(|kind| {
                    // Version, then type.
                    i16::from_be_bytes([kind[0], kind[1]])
                });
            }
            Ok(())
        })?;
        let producer_id = batch.header.producer_id;
        Ok(match kind {
            // A marker that was emptied before.
            None => batch.header.count == 0,
            Some(ABORT) => match self.undone.remove(&producer_id) {
                Some(transaction) if transaction.has_batches => {
                    self.still_needed.push(transaction.aborted);
                    false
                }
                _ => true,
            },
            Some(COMMIT) => !self.committed.remove(&producer_id),
            Some(_) => false,
        })
    }
}
