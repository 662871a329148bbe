"""The status of a pipeline or an app of streams: its process, its rate, its lag, its last error.

`headwater pipeline run` writes the status of each pipeline to the compacted topic
`__headwater_pipelines`, keyed by name, after each batch and every few seconds. Anyone who can reach
the cluster sees what runs, wherever it runs, and why a pipeline no longer does.

The same records are a lease. A run holds the name of a pipeline from its first record until it
writes that it ended, or until it has been silent for `LEASE_MS`. While one run holds a name, the
records of other runs are ignored. All readers fold the topic in the same order and so agree on the
holder: of two runs that start at the same time, the one whose claim is first in the log wins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

TOPIC = "__headwater_pipelines"
# Append times come from the broker, so that a lease does not depend on the clocks of its runs.
TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "message.timestamp.type": "LogAppendTime",
}
# A run that has been silent for this long was killed, or has lost the cluster.
LEASE_MS = 30_000
HEARTBEAT_SECONDS = 5.0

PIPELINE, STREAMS = "pipeline", "streams"  # kinds of statuses
# A record under this key and the name of an app asks the run that holds the name to stop.
STOP_KEY = "stop "
RUNNING, STOPPED, FINISHED, FAILED, LOST = "running", "stopped", "finished", "failed", "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    name: str
    state: str = RUNNING
    run: str = ""  # unique for each start of a pipeline
    file: str = ""
    host: str = ""
    machine: str = ""  # processes with the same value see each other's process ids
    pid: int = 0
    master: str = ""
    reads: tuple[str, ...] = ()
    writes: str = ""
    dead_letters: str | None = None
    mode: str = "append"
    checkpoint: str = ""
    started_ms: int = 0
    noted_ms: int = 0
    batch: int | None = None
    rows_in: int = 0  # since it was started
    input_rate: float = 0.0  # records a second
    lag: int | None = None  # records that are not read yet
    batch_ms: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    watermark: str | None = None
    error: str | None = None
    progress_at: str = ""  # the time of Spark's last progress report
    kind: str = PIPELINE
    late_rows: int = 0  # dropped since it was started
    topics: tuple[str, ...] = ()  # internal ones of an app
    queries: tuple[Mapping[str, Any], ...] = ()  # of an app: the figures of each

    def with_progress(self, progress: Mapping[str, Any]) -> Status:
        """Adds a progress report of Spark. An idle query reports under the number of its next
        batch. A report that was added before changes nothing."""
        said_at = progress["timestamp"]
        if said_at <= self.progress_at:
            return self
        batch = int(progress["batchId"])
        sources = progress.get("sources", [])
        rows = sum(
            _between(each.get("startOffset"), each.get("endOffset")) or 0 for each in sources
        )
        lags = [_between(each.get("endOffset"), each.get("latestOffset")) for each in sources]
        operators = progress.get("stateOperators", [])
        # Spark counts a record twice where a query looks at it twice; offsets count it once.
        seen = float(progress.get("numInputRows") or 0)
        rate = float(progress.get("inputRowsPerSecond") or 0.0)
        duration = progress.get("durationMs", {}).get("triggerExecution")
        return replace(
            self,
            batch=batch,
            progress_at=said_at,
            rows_in=self.rows_in + rows,
            input_rate=round(rate * rows / seen, 1) if seen else 0.0,
            lag=sum(each for each in lags if each is not None)
            if any(each is not None for each in lags)
            else self.lag,
            batch_ms=duration if rows or self.batch_ms is None else self.batch_ms,
            state_rows=sum(int(each.get("numRowsTotal", 0)) for each in operators),
            state_bytes=sum(int(each.get("memoryUsedBytes", 0)) for each in operators),
            watermark=progress.get("eventTime", {}).get("watermark", self.watermark),
            late_rows=self.late_rows + _late(progress),
        )

    def seen_at(self, now_ms: int) -> Status:
        """Returns the status as of now: a run that has been silent for too long is lost."""
        if self.state == RUNNING and now_ms - self.noted_ms > LEASE_MS:
            seconds = (now_ms - self.noted_ms) // 1000
            return replace(self, state=LOST, error=self.error or f"no heartbeat for {seconds} s")
        return self

    def may_follow(self, held: Status) -> bool:
        """Returns whether this status replaces `held`: it is of the same run, or that run has ended
        or has been silent for so long that it no longer holds the name."""
        return (
            self.run == held.run
            or held.state != RUNNING
            or self.noted_ms - held.noted_ms > LEASE_MS
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Status:
        """Reads a status; fields that this version does not know are ignored."""
        given = json.loads(text)
        known = {each.name for each in fields(cls)}
        values = {name: value for name, value in given.items() if name in known}
        lists = ("reads", "topics", "queries")
        return cls(**values | {name: tuple(given.get(name, ())) for name in lists})


def current(records: Iterable[tuple[bytes | None, bytes | None, int]]) -> dict[str, Status]:
    """Returns the status of each pipeline, by name, from all records of the topic in order: key,
    value and timestamp in milliseconds."""
    held: dict[bytes, Status] = {}
    for key, value, timestamp_ms in records:
        if key is None or key.startswith(STOP_KEY.encode()):
            continue
        if value is None:
            held.pop(key, None)
            continue
        status = replace(Status.from_json(value), noted_ms=timestamp_ms)
        if key not in held or status.may_follow(held[key]):
            held[key] = status
    return {status.name: status for status in sorted(held.values(), key=lambda each: each.name)}


def _late(progress: Mapping[str, Any]) -> int:
    """Returns how many rows a batch has dropped as late: by Spark's operators, and by machines,
    which report it as observed metrics."""
    operators = progress.get("stateOperators", [])
    dropped = sum(int(each.get("numRowsDroppedByWatermark", 0)) for each in operators)
    observed = progress.get("observedMetrics") or {}
    return dropped + sum(
        int(each.get("late") or 0) for each in observed.values() if isinstance(each, Mapping)
    )


def _between(start: Any, end: Any) -> int | None:
    """Returns how many offsets lie between two positions of a source; None if unknown."""
    before, after = _offsets(start), _offsets(end)
    if after is None:
        return None
    total = 0
    for topic, partitions in after.items():
        known = (before or {}).get(topic, {})
        total += sum(max(0, offset - known.get(each, 0)) for each, offset in partitions.items())
    return total


def _offsets(position: Any) -> dict[str, dict[str, int]] | None:
    """Reads `{"orders": {"0": 23}}`, as text or parsed; other entries of a source are left out."""
    if isinstance(position, str):
        try:
            position = json.loads(position)
        except ValueError:
            return None
    if not isinstance(position, Mapping):
        return None
    return {
        topic: {each: offset for each, offset in partitions.items() if isinstance(offset, int)}
        for topic, partitions in position.items()
        if isinstance(partitions, Mapping)
    }
