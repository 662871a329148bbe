//! The last offset of each key in a stretch of a log: what compaction remembers.
//!
//! Keys are told apart by 128 bits of a fixed hash, as Kafka does with MD5: two keys that share them
//! are not to be expected in the lifetime of a cluster.

use xxhash_rust::xxh3::xxh3_128;

use crate::batch::next_whole;
use crate::fault::Fault;
use crate::transactions::Tracker;

const EMPTY: i64 = -1;
const SLOTS_AT_FIRST: usize = 1024;
const SLOT_BYTES: usize = std::mem::size_of::<Slot>();

#[derive(Clone, Copy)]
struct Slot {
    hash: [u64; 2],
    offset: i64,
}

const FREE: Slot = Slot {
    hash: [0; 2],
    offset: EMPTY,
};

/// Open addressing in one piece of memory that grows up to its bound.
pub struct Table {
    slots: Vec<Slot>,
    used: usize,
    slots_max: usize,
    keys_max: usize,
    pub latest_offset: i64,
}

fn hash_of(key: &[u8]) -> [u64; 2] {
    let hash = xxh3_128(key);
    [(hash >> 64) as u64, hash as u64]
}

fn find(slots: &[Slot], hash: [u64; 2]) -> usize {
    let mut at = ((hash[0] as u128 * slots.len() as u128) >> 64) as usize;
    while slots[at].offset != EMPTY && slots[at].hash != hash {
        at += 1;
        if at == slots.len() {
            at = 0;
        }
    }
    at
}

impl Table {
    /// A table of at most this much memory; none if that is too little for a single key.
    pub fn new(memory_bytes: usize, load_factor: f64) -> Option<Self> {
        let slots_max = memory_bytes / SLOT_BYTES;
        // A search ends at a free slot, so there must always be one.
        let keys_max = ((slots_max as f64 * load_factor) as usize).min(slots_max.max(1) - 1);
        (keys_max > 0).then(|| Self {
            slots: vec![FREE; SLOTS_AT_FIRST.min(slots_max)],
            used: 0,
            slots_max,
            keys_max,
            latest_offset: -1,
        })
    }

    pub fn used(&self) -> usize {
        self.used
    }

    pub fn keys_max(&self) -> usize {
        self.keys_max
    }

    fn is_full(&self) -> bool {
        self.used >= self.keys_max
    }

    fn put(&mut self, key: &[u8], offset: i64) {
        if self.used * 4 >= self.slots.len() * 3 && self.slots.len() < self.slots_max {
            self.grow();
        }
        let hash = hash_of(key);
        let at = find(&self.slots, hash);
        if self.slots[at].offset == EMPTY {
            self.used += 1;
        }
        self.slots[at] = Slot { hash, offset };
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).min(self.slots_max);
        let mut larger = vec![FREE; size];
        for slot in self.slots.iter().filter(|slot| slot.offset != EMPTY) {
            let at = find(&larger, slot.hash);
            larger[at] = *slot;
        }
        self.slots = larger;
    }

    pub fn get(&self, key: &[u8]) -> i64 {
        self.slots[find(&self.slots, hash_of(key))].offset
    }

    pub fn reach(&mut self, offset: i64) {
        self.latest_offset = self.latest_offset.max(offset);
    }

    /// Takes in the keys of whole batches; gives how far they reach and whether the table is full.
    pub fn learn(
        &mut self,
        data: &[u8],
        from_offset: i64,
        transactions: &mut Tracker,
    ) -> Result<(usize, bool), Fault> {
        let mut at = 0;
        while let Some(batch) = next_whole(data, at)? {
            batch.check_crc()?;
            let header = &batch.header;
            if !transactions.is_undone(&batch)? && header.last_offset() >= from_offset {
                let payload = batch.payload(0)?;
                let mut full = false;
                batch.for_each_record::<Fault>(&payload, |_, record| {
                    let offset = header.offset_of(&record);
                    match record.key {
                        Some(key) if offset >= from_offset && !full => {
                            full = self.is_full();
                            if !full {
                                self.put(key, offset);
                            }
                        }
                        _ => {}
                    }
                    Ok(())
                })?;
                if full {
                    return Ok((at, true));
                }
            }
            if header.last_offset() >= from_offset {
                self.reach(header.last_offset());
            }
            at += batch.bytes.len();
        }
        Ok((at, false))
    }
}
