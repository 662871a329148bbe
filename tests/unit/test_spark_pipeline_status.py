"""The status of a pipeline follows from Spark's progress reports; its records are a lease."""

from __future__ import annotations

from typing import Any

from headwater.spark.pipeline_status import FAILED, LOST, RUNNING, STOPPED, Status, current

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
    assert (lost.state, lost.error) == (LOST, "no heartbeat for 60 s")
    assert Status(name="a", state=STOPPED).seen_at(61_000).state == STOPPED


Record = tuple[bytes, bytes | None, int]


def record(run: str, at_ms: int, *, name: str = "a", state: str = RUNNING) -> Record:
    return name.encode(), Status(name=name, run=run, state=state).to_json().encode(), at_ms


def holder(*records: Record) -> str:
    return current(records)["a"].run


def test_the_last_status_of_each_name_counts_and_a_tombstone_removes_it() -> None:
    records = [record("r", 1, name="b"), record("r", 1), record("r", 2, state=FAILED)]
    found = current([*records, (b"b", None, 3), (None, b"{}", 3)])
    assert {name: (each.state, each.noted_ms) for name, each in found.items()} == {"a": (FAILED, 2)}


def test_of_two_runs_that_claim_a_name_at_the_same_time_the_first_in_the_log_holds_it() -> None:
    claims = [record("first", 1000), record("second", 1000)]
    assert holder(*claims) == "first"
    assert holder(*claims, record("first", 6000), record("second", 6000)) == "first"


def test_a_run_holds_its_name_until_it_ends_or_has_been_silent_for_the_lease() -> None:
    assert holder(record("old", 1000), record("new", 31_000)) == "old"
    assert holder(record("old", 1000), record("new", 31_001)) == "new"
    assert holder(record("old", 1000), record("old", 2000, state=STOPPED), record("new", 2000)) == (
        "new"
    )
    assert holder(record("old", 1000), record("old", 2000, state=LOST), record("new", 2000)) == (
        "new"
    )


def test_a_note_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    assert Status.from_json('{"name": "a", "colour": "red"}') == Status(name="a")
