//! Everything a broker must know about a produced batch before it may store it, in one pass.

use crate::batch::{whole, Whole};
use crate::fault::Fault;

pub const LISTED_MAX: usize = 100;
const NO_TIMESTAMP: i64 = -1;

pub struct Rules {
    pub timestamp_min: i64,
    pub timestamp_max: i64,
    pub keys_required: bool,
    pub output_bytes_max: usize,
}

pub struct Found {
    pub max_timestamp: i64,
    pub max_timestamp_delta: i32,
    pub keyless: Vec<u32>,
    pub out_of_time: Vec<u32>,
}

impl Found {
    pub fn nothing() -> Self {
        Self {
            max_timestamp: NO_TIMESTAMP,
            max_timestamp_delta: -1,
            keyless: Vec::new(),
            out_of_time: Vec::new(),
        }
    }
}

pub fn validate<'a>(
    data: &'a [u8],
    position: usize,
    rules: &Rules,
) -> Result<(Whole<'a>, Found), Fault> {
    let batch = whole(data, position)?;
    batch.check_crc()?;
    let header = &batch.header;
    if header.codec() > crate::compression::ZSTD {
        let reason = format!("codec {}", header.codec());
        return Err(Fault::new(reason, position));
    }
    if header.count < 1 {
        return Err(Fault::new("record count", position));
    }
    if header.last_offset_delta != header.count - 1 {
        return Err(Fault::new("offset deltas", position));
    }
    let payload = batch.payload(rules.output_bytes_max)?;
    let mut found = Found::nothing();
    batch.for_each_record(&payload, |index, record| {
        if record.offset_delta as usize != index {
            return Err(Fault::new("offset deltas", batch.records_position()));
        }
        let timestamp = header.timestamp_of(&record);
        if timestamp > found.max_timestamp {
            found.max_timestamp = timestamp;
            found.max_timestamp_delta = record.offset_delta;
        }
        // A record may have no timestamp at all; that is never too early.
        if (timestamp < rules.timestamp_min || timestamp > rules.timestamp_max)
            && timestamp != NO_TIMESTAMP
            && found.out_of_time.len() < LISTED_MAX
        {
            found.out_of_time.push(index as u32);
        }
        if rules.keys_required && record.key.is_none() && found.keyless.len() < LISTED_MAX {
            found.keyless.push(index as u32);
        }
        Ok(())
    })?;
    Ok((batch, found))
}
