//! The Python exceptions that tell of a fault in some bytes.

use headwater_records::fault::Fault;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

struct Exceptions {
    corrupt: Py<PyType>,
    too_large: Py<PyType>,
}

static EXCEPTIONS: PyOnceLock<Exceptions> = PyOnceLock::new();

// The stable ABI of Python 3.11 cannot give a class of ours fields on top of ValueError, so the
// fields are properties over `args`, which also survive pickling.
fn create(py: Python<'_>) -> PyResult<Exceptions> {
    let members = py.eval(
        c"{
            '__module__': 'headwater._core',
            'reason': property(lambda self: self.args[0]),
            'position': property(lambda self: self.args[1]),
            '__str__': lambda self: '%s at byte %s' % self.args if len(self.args) == 2
                       else ValueError.__str__(self),
        }",
        None,
        None,
    )?;
    let metatype = py.get_type::<PyType>();
    let value_error = py.get_type::<PyValueError>();
    let corrupt = metatype
        .call1(("CorruptBatch", (value_error,), members))?
        .cast_into::<PyType>()?;
    let module_only = PyDict::new(py);
    module_only.set_item("__module__", "headwater._core")?;
    let too_large = metatype
        .call1(("OutputTooLarge", (&corrupt,), module_only))?
        .cast_into::<PyType>()?;
    Ok(Exceptions {
        corrupt: corrupt.unbind(),
        too_large: too_large.unbind(),
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let exceptions = EXCEPTIONS.get_or_try_init(py, || create(py))?;
    module.add("CorruptBatch", &exceptions.corrupt)?;
    module.add("OutputTooLarge", &exceptions.too_large)
}

/// The exception that tells Python of a fault.
pub fn corrupt(fault: Fault) -> PyErr {
    Python::attach(|py| match EXCEPTIONS.get_or_try_init(py, || create(py)) {
        Err(error) => error,
        Ok(exceptions) => {
            let kind = if fault.too_large {
                &exceptions.too_large
            } else {
                &exceptions.corrupt
            };
            PyErr::from_type(
                kind.bind(py).clone(),
                (fault.reason.into_owned(), fault.position),
            )
        }
    })
}

/// A fault or an exception, for walks over records that call Python on the way.
pub enum Failure {
    Fault(Fault),
    Raised(PyErr),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Fault(fault) => corrupt(fault),
            Failure::Raised(error) => error,
        }
    }
}
