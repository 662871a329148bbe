//! The Python face of the Rust core. `_core.pyi` carries the documentation; what is done to bytes
//! is in `headwater-records`.

mod arrow;
mod buffer;
mod compaction;
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
mod outgoing;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::arrow::{decode_arrow, ArrowRecords};
    #[pymodule_export]
    use super::buffer::unfilled;
    #[pymodule_export]
    use super::compaction::{KeyMap, Retainer, Transactions};
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
    use super::outgoing::{Outgoing, Sealed};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
        module.add("HELD", super::intake::HELD)?;
        module.add("NO_ROOM", super::intake::NO_ROOM)?;
        super::fault::register(module)
    }
}
