//! Zstandard, concatenated frames included.
//!
//! Each call is one shot into a buffer of known size, so no window is allocated: a frame that
//! names a window of 128 MiB costs nothing. Larger windows are refused, as Java's decoder does.

use std::cell::RefCell;
use std::mem::MaybeUninit;

use zstd_safe::zstd_sys::{ZSTD_FrameHeader, ZSTD_FrameType_e, ZSTD_getFrameHeader};
use zstd_safe::{compress_bound, decompress_bound, find_frame_compressed_size, CCtx, DCtx};

use super::Refusal;

const CORRUPT: &str = "zstd data";
const WINDOW_BYTES_MAX: u64 = 1 << 27;
const BLOCK_BYTES_MAX: usize = 128 * 1024;
const BLOCK_HEADER_BYTES: usize = 3;
const LEVEL_DEFAULT: i32 = 3;
const LEVEL_KEPT_MAX: i32 = 9; // beyond, a context is tens of megabytes and compressing is slow

thread_local! {
    // A context is about a megabyte to allocate and clear; a batch is often a few kilobytes.
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

fn corrupt() -> Refusal {
    Refusal::corrupt(CORRUPT)
}

/// The size that all frames together declare, where they do; refuses windows that are too large.
fn look_at_frames(data: &[u8]) -> Result<u64, Refusal> {
    let mut rest = data;
    let mut declared = 0u64;
    while !rest.is_empty() {
        let mut header = MaybeUninit::<ZSTD_FrameHeader>::zeroed();
        // SAFETY: the header is plain numbers, and the call reads at most `rest.len()` bytes.
        let (answer, header) = unsafe {
            let answer =
                ZSTD_getFrameHeader(header.as_mut_ptr(), rest.as_ptr() as *const _, rest.len());
            (answer, header.assume_init())
        };
        if answer != 0 {
            return Err(corrupt());
        }
        if header.frameType == ZSTD_FrameType_e::ZSTD_frame {
            if header.windowSize > WINDOW_BYTES_MAX {
                return Err(Refusal::corrupt("zstd window"));
            }
            if header.frameContentSize < u64::MAX - 1 {
                declared = declared.saturating_add(header.frameContentSize);
            }
        }
        let length = find_frame_compressed_size(rest).map_err(|_| corrupt())?;
        rest = rest.get(length..).ok_or_else(corrupt)?;
    }
    Ok(declared)
}

pub fn decompress(data: &[u8], output_bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    if data.is_empty() {
        return Err(corrupt());
    }
    if look_at_frames(data)? > output_bytes_max as u64 {
        return Err(Refusal::TooLarge);
    }
    let fillable = (data.len() / BLOCK_HEADER_BYTES + 1).saturating_mul(BLOCK_BYTES_MAX);
    let bound = decompress_bound(data).map_err(|_| corrupt())? as usize;
    let possible = bound.min(fillable);
    let room = possible.min(output_bytes_max);
    let mut out = Vec::with_capacity(room);
    let answer = DECOMPRESSOR.with_borrow_mut(|kept| {
        kept.get_or_insert_with(DCtx::create)
            .decompress(&mut out, data)
    });
    match answer {
        Ok(_) => Ok(out),
        Err(code) if possible > room && zstd_safe::get_error_name(code).contains("too small") => {
            Err(Refusal::TooLarge)
        }
        Err(_) => Err(corrupt()),
    }
}

pub fn compress_into(out: &mut Vec<u8>, data: &[u8], level: Option<i32>) -> Result<(), String> {
    let level = level.unwrap_or(LEVEL_DEFAULT);
    let (lowest, highest) = (zstd_safe::min_c_level(), zstd_safe::max_c_level());
    if !(lowest..=highest).contains(&level) {
        return Err(format!(
            "zstd level {level}, expected {lowest} to {highest}"
        ));
    }
    let mut frame = Vec::with_capacity(compress_bound(data.len()));
    let answer = if level > LEVEL_KEPT_MAX {
        CCtx::create().compress(&mut frame, data, level)
    } else {
        COMPRESSOR.with_borrow_mut(|kept| {
            kept.get_or_insert_with(CCtx::create)
                .compress(&mut frame, data, level)
        })
    };
    answer.map_err(|code| zstd_safe::get_error_name(code).to_string())?;
    out.extend_from_slice(&frame);
    Ok(())
}
