"""The metrics of a producer, under the names that Kafka's producer uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headwater.observability.measures import Window, ratio


@dataclass(slots=True)
class Metrics:
    records_sent: int = 0  # acknowledged, or given to the network with acks=0
    bytes_sent: int = 0  # as sent: compressed, with batch headers
    bytes_plain: int = 0  # the same before compression
    requests: int = 0  # Produce only
    records_failed: int = 0
    records_retried: int = 0
    batches_split: int = 0
    epochs_bumped: int = 0
    waits_for_room: int = 0
    waited: float = 0.0  # seconds in total
    refused_for_room: int = 0
    batch_size: Window = field(default_factory=Window)  # bytes, as sent
    queue_time: Window = field(default_factory=Window)  # from a batch's first record to its request
    throttle_ms: Window = field(default_factory=Window)  # as told by brokers, mostly 0

    def shown(self, now: float) -> dict[str, float]:
        return {
            "record-send-total": self.records_sent,
            "record-error-total": self.records_failed,
            "record-retry-total": self.records_retried,
            "record-size-avg": ratio(self.bytes_plain, self.records_sent),
            "byte-total": self.bytes_sent,
            "batch-split-total": self.batches_split,
            "compression-rate-avg": ratio(self.bytes_sent, self.bytes_plain),
            "produce-request-total": self.requests,
            "records-per-request-avg": ratio(self.records_sent, self.requests),
            "epoch-bump-total": self.epochs_bumped,
            "bufferpool-wait-total": self.waits_for_room,
            "bufferpool-wait-time-ns-total": round(self.waited * 1e9),
            "buffer-exhausted-total": self.refused_for_room,
            **self.batch_size.shown("batch-size", now),
            **self.queue_time.shown("record-queue-time", now, scale=1000),
            **self.throttle_ms.shown("produce-throttle-time", now),
        }


class TransactionMetrics:
    """Number and duration of the calls of transactions, under Kafka's names."""

    CALLS = ("init", "begin", "send_offsets", "commit", "abort", "prepare")

    def __init__(self) -> None:
        self._counts = dict.fromkeys(self.CALLS, 0)
        self._seconds = dict.fromkeys(self.CALLS, 0.0)

    @contextmanager
    def measuring(self, call: str, now: Callable[[], float]) -> Iterator[None]:
        began = now()
        try:
            yield
        finally:
            self._counts[call] += 1
            self._seconds[call] += now() - began

    def shown(self) -> dict[str, float]:
        shown: dict[str, float] = {}
        for call in self.CALLS:
            name = call.replace("_", "-")
            shown[f"txn-{name}-total"] = self._counts[call]
            shown[f"txn-{name}-time-ns-total"] = round(self._seconds[call] * 1e9)
        return shown
