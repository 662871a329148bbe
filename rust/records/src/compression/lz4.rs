//! LZ4 frames as Kafka's clients write them: independent blocks, 64 KiB each.
//!
//! The frame is read here rather than by the C library's streaming calls: Java clients take only
//! independent blocks and one frame, so a broker must not store what they cannot read; and each
//! block then goes to its place in the output with no context to allocate.

use std::ffi::{c_char, c_int};

use lz4_sys::{LZ4_compressBound, LZ4_compress_HC, LZ4_compress_default};
use xxhash_rust::xxh32::xxh32;

use super::Refusal;

const MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();
const FLAGS: u8 = 0x60; // version 1, independent blocks, no checksums, no content size
const BLOCK_DESCRIPTOR: u8 = 0x40; // blocks of at most 64 KiB
const BLOCK_BYTES: usize = 64 * 1024;
const STORED: u32 = 1 << 31; // the block is not compressed
const RATIO_MAX: usize = 255;
const LEVEL_FAST: i32 = 9; // Kafka's default level, for which it takes the fast compressor

const CORRUPT: &str = "lz4 data";

fn corrupt() -> Refusal {
    Refusal::corrupt(CORRUPT)
}

struct Frame<'a> {
    rest: &'a [u8],
    block_bytes_max: usize,
    block_checksums: bool,
    content_checksum: bool,
}

fn header_checksum(descriptor: &[u8]) -> u8 {
    (xxh32(descriptor, 0) >> 8) as u8
}

fn open(data: &[u8]) -> Result<Frame<'_>, Refusal> {
    let body = data.strip_prefix(&MAGIC).ok_or_else(corrupt)?;
    let [flags, block_descriptor, ..] = *body else {
        return Err(corrupt());
    };
    if flags >> 6 != 1 || flags & 0x03 != 0 || block_descriptor & 0x8f != 0 {
        return Err(corrupt());
    }
    if flags & 0x20 == 0 {
        return Err(Refusal::corrupt("lz4 linked blocks"));
    }
    let block_bytes_max = match block_descriptor >> 4 {
        size @ 4..=7 => 1 << (8 + 2 * size),
        _ => return Err(corrupt()),
    };
    let length = if flags & 0x08 != 0 { 10 } else { 2 };
    let checksum = *body.get(length).ok_or_else(corrupt)?;
    if checksum != header_checksum(&body[..length]) {
        return Err(corrupt());
    }
    Ok(Frame {
        rest: &body[length + 1..],
        block_bytes_max,
        block_checksums: flags & 0x10 != 0,
        content_checksum: flags & 0x04 != 0,
    })
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Refusal> {
    if length > rest.len() {
        return Err(corrupt());
    }
    let (taken, after) = rest.split_at(length);
    *rest = after;
    Ok(taken)
}

fn take_u32(rest: &mut &[u8]) -> Result<u32, Refusal> {
    let (value, after) = rest.split_first_chunk::<4>().ok_or_else(corrupt)?;
    *rest = after;
    Ok(u32::from_le_bytes(*value))
}

pub fn decompress(data: &[u8], output_bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    let mut frame = open(data)?;
    let mut out = Vec::new();
    loop {
        let word = take_u32(&mut frame.rest)?;
        if word == 0 {
            break;
        }
        let length = (word & !STORED) as usize;
        if length > frame.block_bytes_max {
            return Err(corrupt());
        }
        let block = take(&mut frame.rest, length)?;
        if frame.block_checksums && take_u32(&mut frame.rest)? != xxh32(block, 0) {
            return Err(corrupt());
        }
        if word & STORED != 0 {
            out.extend_from_slice(block);
        } else {
            block_into(&mut out, block, frame.block_bytes_max)?;
        }
        if out.len() > output_bytes_max {
            return Err(Refusal::TooLarge);
        }
    }
    if frame.content_checksum && take_u32(&mut frame.rest)? != xxh32(&out, 0) {
        return Err(corrupt());
    }
    if frame.rest.is_empty() {
        Ok(out)
    } else {
        Err(Refusal::corrupt("lz4 trailing bytes"))
    }
}

// The C library takes a match of distance 0, which the format forbids, and yields whatever was in
// the memory before; so blocks are read in safe Rust, and only written by the C library.
fn block_into(out: &mut Vec<u8>, block: &[u8], block_bytes_max: usize) -> Result<(), Refusal> {
    let room = block_bytes_max.min(block.len() * RATIO_MAX);
    let start = out.len();
    out.resize(start + room, 0);
    let written =
        lz4_flex::block::decompress_into(block, &mut out[start..]).map_err(|_| corrupt())?;
    out.truncate(start + written);
    Ok(())
}

pub fn compress_into(out: &mut Vec<u8>, data: &[u8], level: Option<i32>) -> Result<(), String> {
    let level = match level {
        None | Some(LEVEL_FAST) => None,
        Some(level @ 1..=17) => Some(level),
        Some(level) => return Err(format!("lz4 level {level}, expected 1 to 17")),
    };
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[FLAGS, BLOCK_DESCRIPTOR]);
    out.push(header_checksum(&[FLAGS, BLOCK_DESCRIPTOR]));
    for block in data.chunks(BLOCK_BYTES) {
        compress_block_into(out, block, level);
    }
    out.extend_from_slice(&[0; 4]);
    Ok(())
}

fn compress_block_into(out: &mut Vec<u8>, block: &[u8], level: Option<i32>) {
    let length = block.len() as c_int;
    let start = out.len();
    // SAFETY: LZ4_compressBound takes any int; a block is at most 64 KiB.
    let room = unsafe { LZ4_compressBound(length) };
    out.resize(start + 4, 0);
    out.reserve(room as usize);
    let source = block.as_ptr() as *const c_char;
    // SAFETY: `room` bytes are reserved behind the length word, which is as much as the call may
    // write; it returns how many it wrote, or 0.
    let written = unsafe {
        let target = out.as_mut_ptr().add(start + 4) as *mut c_char;
        let written = match level {
            None => LZ4_compress_default(source, target, length, room),
            Some(level) => LZ4_compress_HC(source, target, length, room, level),
        };
        out.set_len(start + 4 + written.max(0) as usize);
        written
    };
    let word = if written > 0 && written < length {
        written as u32
    } else {
        out.truncate(start + 4);
        out.extend_from_slice(block);
        length as u32 | STORED
    };
    out[start..start + 4].copy_from_slice(&word.to_le_bytes());
}
