"""Rows of Arrow tables into the producer's intake, against the same records one by one."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import _core

PARTITIONS = 3
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
BLOBS = {"binary": pa.binary(), "large": pa.large_binary()}
TEXTS = {"text": pa.string(), "large text": pa.large_string()}

BYTES = st.none() | st.binary(max_size=40)
WORDS = st.none() | st.text(max_size=10)
ROW = st.fixed_dictionaries(
    {
        "key": WORDS,
        "value": BYTES,
        "topic": st.sampled_from(["a", "b"]),
        "partition": st.none() | st.integers(0, PARTITIONS - 1),
        "headers": st.none() | st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3),
        "timestamp": st.integers(0, 2**40),
    }
)


class Calls:
    """Chooses partitions by turns and keeps what is closed."""

    def __init__(self) -> None:
        self.closed_batches: list[_core.Outgoing] = []
        self.switches = 0

    def opened(self, topic: str, partition: int) -> None: ...

    def closed(self, outgoing: _core.Outgoing) -> None:
        self.closed_batches.append(outgoing)

    def switch(self, topic: str) -> int:
        self.switches += 1
        return self.switches % PARTITIONS

    def no_partition(self, topic: str, partition: int, partitions: int) -> None:
        raise LookupError(f"{topic} has no {partition}")


def intake(buffer_bytes: int = 1 << 20) -> tuple[_core.Intake, Calls]:
    calls = Calls()
    made = _core.Intake(
        cast(Any, calls),  # the other calls are not made here
        batch_bytes=300,
        buffer_bytes=buffer_bytes,
        record_bytes_max=1000,
        sticky_bytes=100,
        wall_ms=lambda: 7,
    )
    return made, calls


def known(made: _core.Intake) -> _core.Intake:
    for topic in ("a", "b"):
        made.know(topic, PARTITIONS)
    return made


def content(made: _core.Intake, calls: Calls) -> list[tuple[str, int, bytes]]:
    """Every batch, in the order in which they were closed, then those that are open."""
    batches = list(calls.closed_batches)
    for topic in ("a", "b"):
        open_ones = (made.take(topic, partition) for partition in range(PARTITIONS))
        batches += [each for each in open_ones if each is not None]
    for each in batches:
        each.seal()
    return [
        (each.topic, each.partition, bytes(memoryview(each.records)))  # type: ignore[arg-type]
        for each in batches
    ]


def table(rows: list[dict[str, Any]], blob: pa.DataType, text: pa.DataType) -> pa.RecordBatch:
    headers = [
        None if row["headers"] is None else [{"key": k, "value": v} for k, v in row["headers"]]
        for row in rows
    ]
    return pa.RecordBatch.from_pydict(
        {
            "other": pa.array(range(len(rows))),
            "key": pa.array([row["key"] for row in rows], text),
            "value": pa.array([row["value"] for row in rows], blob),
            "topic": pa.array([row["topic"] for row in rows], text),
            "partition": pa.array([row["partition"] for row in rows], pa.int32()),
            "headers": pa.array(headers, pa.list_(HEADER)),
            "timestamp": pa.array(
                [row["timestamp"] * 1000 for row in rows], pa.timestamp("us", "UTC")
            ),
        }
    )


@given(
    rows=st.lists(ROW, max_size=30),
    blob=st.sampled_from(sorted(BLOBS)),
    text=st.sampled_from(sorted(TEXTS)),
    cut=st.integers(0, 10),
)
@settings(max_examples=150)
def test_rows_become_what_the_same_records_become(
    rows: list[dict[str, Any]], blob: str, text: str, cut: int
) -> None:
    by_row, by_row_calls = intake()
    known(by_row)
    for row in rows[cut:]:
        by_row.submit(
            row["topic"],
            row["value"],
            key=row["key"],
            headers=row["headers"],
            timestamp=row["timestamp"],
            partition=row["partition"],
        )
    by_table, by_table_calls = intake()
    # A slice has its rows in the middle of its buffers.
    sliced = table(rows, BLOBS[blob], TEXTS[text]).slice(cut)
    assert _core.submit_arrow(known(by_table), sliced) == (len(rows[cut:]), None)
    assert content(by_table, by_table_calls) == content(by_row, by_row_calls)


def test_columns_that_are_not_there_are_as_if_not_given() -> None:
    by_table, calls = intake()
    values = pa.RecordBatch.from_pydict({"value": ["x", None]})
    assert _core.submit_arrow(known(by_table), values, topic="a") == (2, None)
    [(topic, _, data)] = content(by_table, calls)
    records = _core.decode(data)
    assert topic == "a"
    assert [(each.key, each.value, each.timestamp) for each in records] == [
        (None, b"x", 7),
        (None, None, 7),
    ]


def test_it_ends_before_a_row_of_an_unknown_topic_and_goes_on_there() -> None:
    made, _ = intake()
    made.know("a", PARTITIONS)
    rows = pa.RecordBatch.from_pydict({"topic": ["a", "b", "a"], "value": ["1", "2", "3"]})
    assert _core.submit_arrow(made, rows) == (1, "b")
    made.know("b", PARTITIONS)
    assert _core.submit_arrow(made, rows, start=1) == (3, None)
    assert made.held == []


def test_it_ends_before_a_row_for_which_there_is_no_room() -> None:
    made, calls = intake(buffer_bytes=500)
    rows = pa.RecordBatch.from_pydict({"value": ["x" * 100] * 10, "partition": [0] * 10}).cast(
        pa.schema([("value", pa.string()), ("partition", pa.int32())])
    )
    taken, unknown = _core.submit_arrow(known(made), rows, topic="a")
    assert 0 < taken < 10
    assert unknown is None
    for batch in [*calls.closed_batches, made.take("a", 0)]:
        assert batch is not None
        made.release(batch)
    more, _ = _core.submit_arrow(made, rows, topic="a", start=taken)
    assert more > taken


@pytest.mark.parametrize(
    ("columns", "topic", "says"),
    [
        ({"value": [1]}, "a", "column value is Int64: expected binary or string"),
        ({"value": ["x"], "partition": [1]}, "a", "column partition is Int64: expected int"),
        ({"value": ["x"], "headers": ["x"]}, "a", "column headers is Utf8: expected array"),
        ({"value": ["x"], "timestamp": [1]}, "a", "column timestamp is Int64: expected timestamp"),
        ({"value": ["x"]}, None, "there is no topic: give one, or a column called topic"),
        (
            {"value": ["x"], "topic": pa.array([None], pa.string())},
            None,
            "column topic: row 0 has none",
        ),
        (
            {"value": ["x"], "timestamp": pa.array([-5], pa.timestamp("ms"))},
            "a",
            "column timestamp: row 0 has -5 ms, which is before 1970",
        ),
        (
            {"value": ["x"], "headers": pa.array([[{"key": None}]], pa.list_(HEADER))},
            "a",
            "column headers: a header of row 0 has no key",
        ),
    ],
)
def test_what_is_no_record_is_refused_with_its_column_and_row(
    columns: dict[str, Any], topic: str | None, says: str
) -> None:
    made, _ = intake()
    with pytest.raises((TypeError, ValueError)) as caught:
        _core.submit_arrow(known(made), pa.RecordBatch.from_pydict(columns), topic=topic)
    assert str(caught.value).startswith(says)


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(AttributeError):
        _core.submit_arrow(intake()[0], [1, 2], topic="a")
