//! Kafka's record batches: read, checked, written, compressed, compacted, turned into columns.
//!
//! Pure functions over bytes: no I/O, no policy, no threads. Input is never trusted; whatever is
//! wrong with it comes back as a [`fault::Fault`], and nothing here panics on it.

pub mod batch;
pub mod builder;
pub mod columns;
pub mod compression;
pub mod fault;
pub mod keymap;
pub mod murmur2;
pub mod record;
pub mod retain;
pub mod transactions;
pub mod validate;
pub mod varint;
