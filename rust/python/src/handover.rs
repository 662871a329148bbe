//! Records on their way from the threads that give them to the one thread that owns an intake. A
//! record costs its references and a place in a queue; the other thread is woken for the first one.

use std::collections::VecDeque;
use std::mem;
use std::process;
use std::sync::Mutex;
use std::thread::{self, ThreadId};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use pyo3::{PyTraverseError, PyVisit};

use crate::entry::check_callable;
use crate::intake::{Failed, Intake};

/// The cost of a record besides its key and value.
const RECORD_BYTES: usize = 100;

struct Given {
    topic: Py<PyString>,
    value: Option<Py<PyAny>>,
    key: Option<Py<PyAny>>,
    partition: Option<i32>,
    waiter: Option<Py<PyAny>>,
    bytes: usize,
}

struct Queue {
    records: VecDeque<Given>,
    bytes: usize,
    is_carried: bool, // the owner is at it, or was called
    is_closed: bool,
}

impl Queue {
    fn next(&mut self) -> Option<Given> {
        let given = self.records.pop_front()?;
        self.bytes -= given.bytes;
        Some(given)
    }
}

#[pyclass(frozen, module = "headwater._core")]
pub struct Handover {
    queue: Mutex<Queue>,
    calls: Py<PyAny>,
    bytes_max: usize,
    small_bytes: usize,
    owner: ThreadId,
    process: u32,
}

/// The size of what can neither change nor be refused any more; None of anything else.
fn fixed_bytes(object: Option<&Bound<'_, PyAny>>) -> Option<usize> {
    let Some(object) = object else {
        return Some(0);
    };
    if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        Some(bytes.as_bytes().len())
    } else if let Ok(text) = object.cast_exact::<PyString>() {
        text.to_str().ok().map(str::len)
    } else {
        None
    }
}

#[pymethods]
impl Handover {
    #[new]
    #[pyo3(signature = (calls, *, bytes_max, small_bytes))]
    fn new(calls: Py<PyAny>, bytes_max: usize, small_bytes: usize) -> Self {
        Self {
            queue: Mutex::new(Queue {
                records: VecDeque::new(),
                bytes: 0,
                is_carried: false,
                is_closed: false,
            }),
            calls,
            bytes_max,
            small_bytes,
            owner: thread::current().id(),
            process: process::id(),
        }
    }

    /// The Python objects it refers to, except for records, which never refer to a producer.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.calls)
    }

    #[pyo3(signature = (
        topic, value = None, *, key = None, headers = None, timestamp = None, partition = None,
        on_delivery = None,
    ))]
    #[allow(clippy::too_many_arguments)]
    fn submit<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyString>,
        value: Option<&Bound<'py, PyAny>>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        partition: Option<i32>,
        on_delivery: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        check_callable(on_delivery)?;
        if thread::current().id() == self.owner || process::id() != self.process {
            self.calls.call_method0(py, "refused")?;
        }
        let content = fixed_bytes(value).zip(fixed_bytes(key));
        let bytes = match content {
            Some((value, key)) if headers.is_none() && timestamp.is_none() => {
                RECORD_BYTES + value + key
            }
            _ => usize::MAX,
        };
        if bytes >= self.small_bytes {
            let record = (
                topic,
                value,
                key,
                headers,
                timestamp,
                partition,
                on_delivery,
            );
            self.calls.call_method1(py, "apart", (record,))?;
            return Ok(());
        }
        let given = Given {
            topic: topic.clone().unbind(),
            value: value.map(|object| object.clone().unbind()),
            key: key.map(|object| object.clone().unbind()),
            partition,
            waiter: on_delivery.map(|object| object.clone().unbind()),
            bytes,
        };
        let is_first = loop {
            let mut queue = self.queue.lock().unwrap();
            if queue.is_closed {
                drop(queue);
                self.calls.call_method0(py, "refused")?;
                return Ok(());
            }
            if queue.bytes <= self.bytes_max {
                queue.bytes += bytes;
                queue.records.push_back(given);
                break !mem::replace(&mut queue.is_carried, true);
            }
            drop(queue);
            self.calls.call_method0(py, "full")?;
        };
        if is_first {
            self.calls.call_method0(py, "first")?;
        }
        Ok(())
    }

    fn pass_on(
        &self,
        py: Python<'_>,
        intake: &Bound<'_, Intake>,
        records_max: usize,
    ) -> (usize, Vec<Failed>) {
        let mut failed = Vec::new();
        for taken in 0..records_max {
            let Some(given) = self.queue.lock().unwrap().next() else {
                return (taken, failed);
            };
            let placed = intake.get().take_given(
                py,
                given.topic.bind(py),
                given.value.as_ref().map(|object| object.bind(py)),
                given.key.as_ref().map(|object| object.bind(py)),
                given.partition,
                given.waiter.as_ref().map(|object| object.bind(py)),
            );
            match placed {
                Ok(true) => {}
                Ok(false) => {
                    let mut queue = self.queue.lock().unwrap();
                    queue.bytes += given.bytes;
                    queue.records.push_front(given);
                    return (taken, failed);
                }
                Err(error) => failed.push((given.waiter, error.into_value(py).into_any())),
            }
        }
        (records_max, failed)
    }

    #[allow(clippy::type_complexity)]
    fn pop(
        &self,
    ) -> Option<(
        Py<PyString>,
        Option<Py<PyAny>>,
        Option<Py<PyAny>>,
        Option<Py<PyAny>>,
        Option<i64>,
        Option<i32>,
        Option<Py<PyAny>>,
    )> {
        let mut queue = self.queue.lock().unwrap();
        let Some(given) = queue.next() else {
            queue.is_carried = false;
            return None;
        };
        let Given {
            topic,
            value,
            key,
            partition,
            waiter,
            ..
        } = given;
        Some((topic, value, key, None, None, partition, waiter))
    }

    fn close(&self) {
        self.queue.lock().unwrap().is_closed = true;
    }

    #[getter]
    fn waiting_bytes(&self) -> usize {
        self.queue.lock().unwrap().bytes
    }
}
