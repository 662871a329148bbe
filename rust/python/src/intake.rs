//! The intake of a producer: gives each record a partition and appends it to the batch of that
//! partition, without making a Python object. Python is called when a batch opens or is full, when a
//! partition must be chosen, when the topic is not known yet and when the buffer is full.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3::{PyTraverseError, PyVisit};

use crate::entry::{check_callable, size_or_none, write_headers, Content};
use crate::outgoing::{Growing, Outgoing, Waiter};
use headwater_records::batch::HEADER_BYTES;
use headwater_records::builder::Entry;
use headwater_records::murmur2::murmur2;

const FIRST_CAPACITY: usize = 1024;

pub const NO_PARTITION: i32 = -1;

/// Returned by `Intake.add` in place of a partition.
pub const HELD: i32 = -1;
pub const NO_ROOM: i32 = -2;

/// The outcome of adding a record.
#[derive(Clone, Copy, PartialEq)]
pub enum Placed {
    Appended { partition: i32, opened: bool },
    UnknownTopic,
    NoRoom,
}

/// A record for a topic that is not known yet.
struct Held {
    key: Option<Py<PyAny>>,
    value: Option<Py<PyAny>>,
    headers: Vec<u8>,
    timestamp: i64,
    partition: i32,
    waiter: Option<Py<PyAny>>,
    cost: usize,
}

struct Topic {
    name: Py<PyString>,
    partitions: i32, // 0: not known yet
    open: Vec<Option<Growing>>,
    sticky: i32,
    sticky_bytes: usize,
    held: Vec<Held>,
}

struct State {
    by_name: HashMap<Box<str>, usize>,
    topics: Vec<Topic>,
    recent: Option<(Py<PyString>, usize)>, // most callers pass the same str object every time
    used: usize,
}

impl State {
    #[inline]
    fn find(&mut self, name: &Bound<'_, PyString>) -> PyResult<usize> {
        if let Some((recent, index)) = &self.recent {
            if recent.as_ptr() == name.as_ptr() {
                return Ok(*index);
            }
        }
        let text = name.to_str()?;
        let index = match self.by_name.get(text) {
            Some(index) => *index,
            None => {
                self.topics.push(Topic {
                    name: name.clone().unbind(),
                    partitions: 0,
                    open: Vec::new(),
                    sticky: NO_PARTITION,
                    sticky_bytes: 0,
                    held: Vec::new(),
                });
                self.by_name.insert(text.into(), self.topics.len() - 1);
                self.topics.len() - 1
            }
        };
        // A str that is let go here is only a str: no code of anybody runs under the lock.
        self.recent = Some((name.clone().unbind(), index));
        Ok(index)
    }
}

/// The waiter of a record that could not be added, and the error.
pub type Failed = (Option<Py<PyAny>>, Py<PyAny>);

/// What happened to a record, and so which callback is due after the lock is released.
enum Step {
    Appended { partition: i32, opened: bool },
    Held { first: bool },
    Unknown,
    Choose,
    Switch,
    Closed(Growing, i32),
    Full,
    NoSuchPartition(i32),
}

#[derive(Clone, Copy, PartialEq)]
pub enum Room {
    MakeIt, // call `full`, which makes room or raises
    Ask,    // say that there is none
    Taken,  // it was held, and its room with it
    Rows,   // say that there is none, or that the topic is not known; hold nothing
}

#[pyclass(frozen, module = "headwater._core")]
pub struct Intake {
    state: Mutex<State>, // never held while Python code runs
    batch_bytes: usize,
    sticky_bytes: usize,
    buffer_bytes: usize,
    record_bytes_max: usize,
    ignore_keys: bool,
    calls: Py<PyAny>,
    choose: Option<Py<PyAny>>,
    wall_ms: Option<Py<PyAny>>,
}

impl Intake {
    pub fn now_ms(&self, py: Python<'_>) -> PyResult<i64> {
        match &self.wall_ms {
            Some(clock) => clock.call0(py)?.extract(py),
            None => Ok(SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as i64)),
        }
    }

    fn refused(
        &self,
        py: Python<'_>,
        what: &str,
        topic: &Bound<'_, PyString>,
        cause: PyErr,
    ) -> PyErr {
        let answer = self
            .calls
            .call_method1(py, "refused", (what, topic, cause.value(py)));
        match answer {
            Err(error) => error,
            Ok(_) => cause,
        }
    }

    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn step(
        &self,
        name: &Bound<'_, PyString>,
        entry: &Entry<'_>,
        asked: i32,
        room: Room,
        objects: (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, PyAny>>),
        waiter: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Step> {
        let mut guard = self.state.lock().unwrap();
        let state = &mut *guard;
        let index = state.find(name)?;
        let topic = &mut state.topics[index];
        let bytes_max = entry.bytes_max();
        if room != Room::Taken && state.used + bytes_max > self.buffer_bytes && state.used > 0 {
            return Ok(Step::Full);
        }
        if topic.partitions == 0 && room == Room::Rows {
            return Ok(Step::Unknown);
        }
        if topic.partitions == 0 {
            let held = Held {
                key: objects.0.map(|object| object.clone().unbind()),
                value: objects.1.map(|object| object.clone().unbind()),
                headers: entry.headers.to_vec(),
                timestamp: entry.timestamp,
                partition: asked,
                waiter: waiter.map(|object| object.clone().unbind()),
                cost: bytes_max,
            };
            state.used += bytes_max;
            topic.held.push(held);
            return Ok(Step::Held {
                first: topic.held.len() == 1,
            });
        }
        let mut sticks = false;
        let partition = if asked != NO_PARTITION {
            if asked < 0 || asked >= topic.partitions {
                return Ok(Step::NoSuchPartition(topic.partitions));
            }
            asked
        } else if self.choose.is_some() {
            return Ok(Step::Choose);
        } else if let (Some(key), false) = (entry.key, self.ignore_keys) {
            (murmur2(key) & 0x7fff_ffff) % topic.partitions
        } else if topic.sticky == NO_PARTITION {
            return Ok(Step::Switch);
        } else {
            sticks = true;
            topic.sticky
        };
        let slot = &mut topic.open[partition as usize];
        let opened = slot.is_none();
        let growing =
            slot.get_or_insert_with(|| Growing::new(FIRST_CAPACITY.min(self.batch_bytes)));
        let batch = &mut growing.batch;
        let before = if opened { 0 } else { batch.bytes.len() };
        if !batch.append(entry, self.batch_bytes) {
            let full = slot.take().unwrap();
            if sticks && topic.sticky_bytes >= self.sticky_bytes {
                topic.sticky = NO_PARTITION;
            }
            return Ok(Step::Closed(full, partition));
        }
        let added = batch.bytes.len() - before;
        if let Some(object) = waiter {
            growing.waiters.push(Waiter {
                index: batch.count - 1,
                timestamp: entry.timestamp,
                key_bytes: size_or_none(entry.key),
                value_bytes: size_or_none(entry.value),
                object: object.clone().unbind(),
            });
        }
        if sticks {
            topic.sticky_bytes += added;
        }
        state.used += added;
        Ok(Step::Appended { partition, opened })
    }

    fn outgoing<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyString>,
        partition: i32,
        batch: Growing,
    ) -> PyResult<Bound<'py, Outgoing>> {
        Bound::new(py, Outgoing::new(topic.clone().unbind(), partition, batch))
    }

    fn stick_to(&self, name: &Bound<'_, PyString>, partition: i32) -> PyResult<()> {
        let mut state = self.state.lock().unwrap();
        let index = state.find(name)?;
        let topic = &mut state.topics[index];
        if partition < 0 || partition >= topic.partitions {
            return Err(PyValueError::new_err(format!(
                "partition {partition} chosen, but there are {}",
                topic.partitions
            )));
        }
        topic.sticky = partition;
        topic.sticky_bytes = 0;
        Ok(())
    }

    /// Puts a record into the batch of its partition. With `Room::Ask` the caller learns from the
    /// answer that a batch was opened; otherwise `opened` is called.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub fn place<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyString>,
        entry: &Entry<'_>,
        mut asked: i32,
        room: Room,
        key: Option<&Bound<'py, PyAny>>,
        value: Option<&Bound<'py, PyAny>>,
        waiter: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Placed> {
        let calls = &self.calls;
        let largest = HEADER_BYTES + entry.bytes_max();
        if largest > self.record_bytes_max || largest > self.buffer_bytes {
            calls.call_method1(py, "too_large", (topic, largest))?;
            return Err(PyValueError::new_err("the record is too large"));
        }
        loop {
            match self.step(topic, entry, asked, room, (key, value), waiter)? {
                Step::Appended { partition, opened } => {
                    if opened && room != Room::Ask {
                        calls.call_method1(py, "opened", (topic, partition))?;
                    }
                    return Ok(Placed::Appended { partition, opened });
                }
                Step::Held { first } => {
                    if first {
                        calls.call_method1(py, "unknown", (topic,))?;
                    }
                    return Ok(Placed::UnknownTopic);
                }
                Step::Unknown => return Ok(Placed::UnknownTopic),
                Step::Choose => {
                    let chosen = self
                        .choose
                        .as_ref()
                        .unwrap()
                        .call1(py, (topic, key, value))?;
                    asked = chosen.extract(py)?;
                    if asked < 0 {
                        return Err(PyValueError::new_err(format!(
                            "the partitioner chose partition {asked}"
                        )));
                    }
                }
                Step::Switch => {
                    let chosen = calls.call_method1(py, "switch", (topic,))?;
                    self.stick_to(topic, chosen.extract(py)?)?;
                }
                Step::Closed(batch, partition) => {
                    let full = self.outgoing(py, topic, partition, batch)?;
                    calls.call_method1(py, "closed", (full,))?;
                }
                Step::Full if matches!(room, Room::Ask | Room::Rows) => return Ok(Placed::NoRoom),
                Step::Full => {
                    calls.call_method1(py, "full", (largest,))?;
                }
                Step::NoSuchPartition(partitions) => {
                    calls.call_method1(py, "no_partition", (topic, asked, partitions))?;
                    return Err(PyValueError::new_err("there is no such partition"));
                }
            }
        }
    }

    /// A timestamp that was given: milliseconds as they are, anything else as Python reads it.
    fn milliseconds(&self, py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<i64> {
        if let Ok(given) = object.extract::<i64>() {
            return Ok(given);
        }
        self.calls
            .call_method1(py, "timestamp", (object,))?
            .extract(py)
    }

    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn take_in<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyString>,
        value: Option<&Bound<'py, PyAny>>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        partition: Option<i32>,
        waiter: Option<&Bound<'py, PyAny>>,
        room: Room,
    ) -> PyResult<Placed> {
        let value_content =
            Content::open(value).map_err(|cause| self.refused(py, "value", topic, cause))?;
        let key_content =
            Content::open(key).map_err(|cause| self.refused(py, "key", topic, cause))?;
        let mut header_bytes = Vec::new();
        if let Some(headers) = headers {
            write_headers(&mut header_bytes, headers)
                .map_err(|cause| self.refused(py, "headers", topic, cause))?;
        }
        let timestamp = match timestamp {
            None => self.now_ms(py)?,
            Some(object) => match self.milliseconds(py, object)? {
                given if given >= 0 => given,
                given => {
                    let cause = PyValueError::new_err(format!("{given} ms is before 1970"));
                    return Err(self.refused(py, "timestamp", topic, cause));
                }
            },
        };
        // -1 says "not given" inside; a user's -1 must not pass as that.
        let asked = match partition {
            None => NO_PARTITION,
            Some(given) if given < 0 => i32::MIN,
            Some(given) => given,
        };
        let entry = Entry {
            key: key_content.get(),
            value: value_content.get(),
            headers: &header_bytes,
            timestamp,
        };
        self.place(py, topic, &entry, asked, room, key, value, waiter)
    }

    /// Takes a record in that another thread has given; whether there was room for it.
    pub fn take_given<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyString>,
        value: Option<&Bound<'py, PyAny>>,
        key: Option<&Bound<'py, PyAny>>,
        partition: Option<i32>,
        waiter: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<bool> {
        let placed = self.take_in(
            py,
            topic,
            value,
            key,
            None,
            None,
            partition,
            waiter,
            Room::Ask,
        )?;
        if let Placed::Appended {
            partition,
            opened: true,
        } = placed
        {
            self.calls.call_method1(py, "opened", (topic, partition))?;
        }
        Ok(placed != Placed::NoRoom)
    }
}

#[pymethods]
impl Intake {
    #[new]
    #[pyo3(signature = (
        calls, *, batch_bytes, buffer_bytes, record_bytes_max, sticky_bytes = 16384,
        ignore_keys = false, choose = None, wall_ms = None,
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        calls: Py<PyAny>,
        batch_bytes: usize,
        buffer_bytes: usize,
        record_bytes_max: usize,
        sticky_bytes: usize,
        ignore_keys: bool,
        choose: Option<Py<PyAny>>,
        wall_ms: Option<Py<PyAny>>,
    ) -> Self {
        Self {
            state: Mutex::new(State {
                by_name: HashMap::new(),
                topics: Vec::new(),
                recent: None,
                used: 0,
            }),
            batch_bytes,
            sticky_bytes,
            buffer_bytes,
            record_bytes_max,
            ignore_keys,
            calls,
            choose,
            wall_ms,
        }
    }

    /// The Python objects it refers to, so that the collector can free a producer that was dropped.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.calls)?;
        visit.call(&self.choose)?;
        visit.call(&self.wall_ms)
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
        self.take_in(
            py,
            topic,
            value,
            key,
            headers,
            timestamp,
            partition,
            on_delivery,
            Room::MakeIt,
        )?;
        Ok(())
    }

    #[pyo3(signature = (topic, value, key, headers, timestamp, partition, waiter))]
    #[allow(clippy::too_many_arguments)]
    fn add<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyString>,
        value: Option<&Bound<'py, PyAny>>,
        key: Option<&Bound<'py, PyAny>>,
        headers: Option<&Bound<'py, PyAny>>,
        timestamp: Option<&Bound<'py, PyAny>>,
        partition: Option<i32>,
        waiter: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(i32, bool)> {
        let placed = self.take_in(
            py,
            topic,
            value,
            key,
            headers,
            timestamp,
            partition,
            waiter,
            Room::Ask,
        )?;
        Ok(match placed {
            Placed::Appended { partition, opened } => (partition, opened),
            Placed::UnknownTopic => (HELD, false),
            Placed::NoRoom => (NO_ROOM, false),
        })
    }

    fn know<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyString>,
        partitions: i32,
    ) -> PyResult<Vec<Failed>> {
        if partitions <= 0 {
            return Err(PyValueError::new_err(format!(
                "{partitions} partitions; a topic has at least one"
            )));
        }
        let held = {
            let mut guard = self.state.lock().unwrap();
            let state = &mut *guard;
            let index = state.find(topic)?;
            let found = &mut state.topics[index];
            found.partitions = partitions;
            if found.open.len() < partitions as usize {
                found.open.resize_with(partitions as usize, || None);
            }
            if found.sticky >= partitions {
                found.sticky = NO_PARTITION;
            }
            let held = std::mem::take(&mut found.held);
            state.used -= held.iter().map(|record| record.cost).sum::<usize>();
            held
        };
        let mut failed = Vec::new();
        for record in held {
            let key = record.key.as_ref().map(|object| object.bind(py));
            let value = record.value.as_ref().map(|object| object.bind(py));
            let waiter = record.waiter.as_ref().map(|object| object.bind(py));
            let placed = (|| {
                let (key_content, value_content) = (Content::open(key)?, Content::open(value)?);
                let entry = Entry {
                    key: key_content.get(),
                    value: value_content.get(),
                    headers: &record.headers,
                    timestamp: record.timestamp,
                };
                let asked = record.partition;
                self.place(py, topic, &entry, asked, Room::Taken, key, value, waiter)
            })();
            if let Err(error) = placed {
                failed.push((record.waiter, error.into_value(py).into_any()));
            }
        }
        Ok(failed)
    }

    fn abandon(&self, topic: &Bound<'_, PyString>) -> PyResult<Vec<Option<Py<PyAny>>>> {
        let held = {
            let mut guard = self.state.lock().unwrap();
            let state = &mut *guard;
            let index = state.find(topic)?;
            let held = std::mem::take(&mut state.topics[index].held);
            state.used -= held.iter().map(|record| record.cost).sum::<usize>();
            held
        };
        Ok(held.into_iter().map(|record| record.waiter).collect())
    }

    fn forget(&self, topic: &Bound<'_, PyString>) -> PyResult<()> {
        let mut state = self.state.lock().unwrap();
        let index = state.find(topic)?;
        state.topics[index].partitions = 0;
        state.topics[index].sticky = NO_PARTITION;
        Ok(())
    }

    fn partitions(&self, topic: &Bound<'_, PyString>) -> PyResult<i32> {
        let mut state = self.state.lock().unwrap();
        let index = state.find(topic)?;
        Ok(state.topics[index].partitions)
    }

    fn take<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, PyString>,
        partition: i32,
    ) -> PyResult<Option<Bound<'py, Outgoing>>> {
        let taken = {
            let mut state = self.state.lock().unwrap();
            let index = state.find(topic)?;
            let found = &mut state.topics[index];
            let Some(slot) = found.open.get_mut(partition as usize) else {
                return Err(PyKeyError::new_err(format!(
                    "no partition {partition} of {}",
                    topic.to_str()?
                )));
            };
            if found.sticky == partition && found.sticky_bytes >= self.sticky_bytes {
                found.sticky = NO_PARTITION;
            }
            slot.take()
        };
        match taken {
            None => Ok(None),
            Some(batch) => self.outgoing(py, topic, partition, batch).map(Some),
        }
    }

    /// Gives back what a batch took of the buffer; a second time does nothing.
    fn release(&self, batch: &mut Outgoing) {
        let mut state = self.state.lock().unwrap();
        state.used -= batch.cost;
        batch.cost = 0;
    }

    /// After a split: the parts take what they are, in place of the whole.
    fn charge(&self, batch: &Outgoing) {
        self.state.lock().unwrap().used += batch.cost;
    }

    #[getter]
    fn used_bytes(&self) -> usize {
        self.state.lock().unwrap().used
    }

    #[getter]
    fn held(&self) -> Vec<(Py<PyString>, usize)> {
        let state = self.state.lock().unwrap();
        Python::attach(|py| {
            let waiting = state.topics.iter().filter(|topic| !topic.held.is_empty());
            waiting
                .map(|topic| (topic.name.clone_ref(py), topic.held.len()))
                .collect()
        })
    }
}
