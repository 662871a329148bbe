//! The Rust core of Headwater: pure functions over bytes. `_core.pyi` carries the documentation.

mod arrow;
mod batch;
mod buffer;
mod columns;
mod compression;
mod consumed;
mod decode;
mod encode;
mod entry;
mod extent;
mod fault;
mod handover;
mod hash;
mod header;
mod intake;
mod intake_arrow;
mod keymap;
mod murmur2;
mod outgoing;
mod record;
mod retain;
mod transactions;
mod validate;
mod varint;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::arrow::{decode_arrow, ArrowRecords};
    #[pymodule_export]
    use super::buffer::unfilled;
    #[pymodule_export]
    use super::consumed::{ConsumedRecord, FetchedRecords};
    #[pymodule_export]
    use super::decode::{decode, Record};
    #[pymodule_export]
    use super::encode::{compress, decompress, encode, recompress};
    #[pymodule_export]
    use super::extent::extent;
    #[pymodule_export]
    use super::handover::Handover;
    #[pymodule_export]
    use super::hash::{crc32c, murmur2};
    #[pymodule_export]
    use super::header::{restamp, scan, validate, Batch};
    #[pymodule_export]
    use super::intake::Intake;
    #[pymodule_export]
    use super::intake_arrow::submit_arrow;
    #[pymodule_export]
    use super::keymap::KeyMap;
    #[pymodule_export]
    use super::outgoing::{Outgoing, Sealed};
    #[pymodule_export]
    use super::retain::Retainer;
    #[pymodule_export]
    use super::transactions::Transactions;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::fault::register(module)
    }
}
