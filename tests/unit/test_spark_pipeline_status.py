"""What is said about a pipeline follows from what Spark says of its batches."""

from __future__ import annotations

from typing import Any

from headwater.spark.pipeline_status import FAILED, LOST, RUNNING, STOPPED, Status, newest

PROGRESS: dict[str, Any] = {
    "timestamp": "2026-03-01T08:00:10.000Z",
    "batchId": 7,
    "numInputRows": 40,
    "inputRowsPerSecond": 80.0,
    "durationMs": {"triggerExecution": 250},
    "eventTime": {"watermark": "2026-03-01T08:00:00.000Z"},
    "stateOperators": [{"numRowsTotal": 5, "memoryUsedBytes": 1000}],
    "sources": [
        {
            "startOffset": {"orders": {"0": 10, "1": 0}, "@ids": {"orders": "abc"}},
            "endOffset": '{"orders": {"0": 20, "1": 10}}',
            "latestOffset": {"orders": {"0": 25, "1": 10}},
        }
    ],
}


def test_a_batch_says_rate_lag_time_and_state() -> None:
    status = Status(name="totals").with_progress(PROGRESS)
    assert status.batch == 7
    assert status.lag == 5
    assert status.batch_ms == 250
    assert (status.state_rows, status.state_bytes) == (5, 1000)
    assert status.watermark == "2026-03-01T08:00:00.000Z"


def test_a_record_that_a_query_looks_at_twice_counts_once() -> None:
    status = Status(name="totals").with_progress(PROGRESS)
    assert status.rows_in == 20
    assert status.input_rate == 40.0


def test_a_batch_that_runs_after_spark_was_idle_under_its_number_is_counted() -> None:
    idle = {"timestamp": "2026-03-01T08:00:00.000Z", "batchId": 7, "numInputRows": 0}
    status = Status(name="totals").with_progress(idle).with_progress(PROGRESS)
    assert (status.batch, status.rows_in) == (7, 20)


def test_the_same_batch_is_not_counted_again() -> None:
    status = Status(name="totals").with_progress(PROGRESS).with_progress(PROGRESS)
    assert status.rows_in == 20


def test_a_batch_without_records_keeps_the_time_of_the_last_one_that_had_some() -> None:
    idle = PROGRESS | {"batchId": 8, "numInputRows": 0, "durationMs": {"triggerExecution": 1}}
    idle["timestamp"] = "2026-03-01T08:00:20.000Z"
    idle["sources"] = [{"endOffset": PROGRESS["sources"][0]["endOffset"]}]
    idle["sources"][0]["startOffset"] = idle["sources"][0]["endOffset"]
    status = Status(name="totals").with_progress(PROGRESS).with_progress(idle)
    assert (status.batch, status.batch_ms, status.rows_in) == (8, 250, 20)
    assert status.input_rate == 0.0


def test_who_runs_and_is_silent_is_lost_and_who_has_stopped_may_be_silent() -> None:
    assert Status(name="a", noted_ms=1000).seen_at(2000).state == RUNNING
    lost = Status(name="a", noted_ms=1000).seen_at(61_000)
    assert (lost.state, lost.error) == (LOST, "not heard of for 60 s")
    assert Status(name="a", state=STOPPED).seen_at(61_000).state == STOPPED


def test_the_newest_note_of_each_name_counts_and_a_tombstone_takes_it_away() -> None:
    first = Status(name="a", reads=("orders",))
    second = Status(name="a", state=FAILED, error="it broke", reads=("orders",))
    other = Status(name="b")
    notes = [(each.name.encode(), each.to_json().encode()) for each in (other, first, second)]
    assert newest([*notes, (b"b", None), (None, b"{}")]) == [second]


def test_a_note_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    assert Status.from_json('{"name": "a", "colour": "red"}') == Status(name="a")
