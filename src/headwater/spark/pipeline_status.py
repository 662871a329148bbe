"""What is known about a pipeline that runs: its rate, its lag, its last error.

Whoever runs pipelines notes each of them in the compacted topic `__headwater_pipelines` of the
cluster it writes to, by name, after each batch and every few seconds. So everybody who can reach
the cluster can see what runs, wherever it runs, and what was wrong with what no longer does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

TOPIC = "__headwater_pipelines"
TOPIC_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "1048576"}
# Who has not been heard of for so long was killed, or has lost the cluster.
SILENT_MS_MAX = 30_000
NOTE_EVERY_SECONDS = 5.0

RUNNING, STOPPED, FINISHED, FAILED, LOST = "running", "stopped", "finished", "failed", "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    name: str
    state: str = RUNNING
    file: str = ""
    host: str = ""
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
    lag: int | None = None  # records that are there and not read yet
    batch_ms: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    watermark: str | None = None
    error: str | None = None
    progress_at: str = ""  # what Spark has said last

    def with_progress(self, progress: Mapping[str, Any]) -> Status:
        """What Spark says of a batch, or of having none to run; it says so under the number of the
        batch that comes next. What was said already changes nothing."""
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
        )

    def seen_at(self, now_ms: int) -> Status:
        """As it looks to somebody who reads it now."""
        if self.state == RUNNING and now_ms - self.noted_ms > SILENT_MS_MAX:
            seconds = (now_ms - self.noted_ms) // 1000
            return replace(self, state=LOST, error=self.error or f"not heard of for {seconds} s")
        return self

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Status:
        """What another version has written is read as far as it is known here."""
        given = json.loads(text)
        known = {each.name for each in fields(cls)}
        values = {name: value for name, value in given.items() if name in known}
        return cls(**values | {"reads": tuple(given.get("reads", ()))})


def newest(records: Iterable[tuple[bytes | None, bytes | None]]) -> list[Status]:
    """The last note about each pipeline, by name, from all records of the topic in order."""
    notes: dict[bytes, Status] = {}
    for key, value in records:
        if key is None:
            continue
        if value is None:
            notes.pop(key, None)
        else:
            notes[key] = Status.from_json(value)
    return sorted(notes.values(), key=lambda status: status.name)


def _between(start: Any, end: Any) -> int | None:
    """How many offsets lie between two positions of a source; None if one is not known."""
    before, after = _offsets(start), _offsets(end)
    if after is None:
        return None
    total = 0
    for topic, partitions in after.items():
        known = (before or {}).get(topic, {})
        total += sum(max(0, offset - known.get(each, 0)) for each, offset in partitions.items())
    return total


def _offsets(position: Any) -> dict[str, dict[str, int]] | None:
    """`{"orders": {"0": 23}}`, as text or parsed; what else a source notes has other values."""
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
