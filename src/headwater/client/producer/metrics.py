"""What a producer counts, under the names that Kafka's producer has for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Metrics:
    records_sent: int = 0  # acknowledged, or given to the network with acks=0
    bytes_sent: int = 0  # as sent: compressed, with headers of batches
    bytes_plain: int = 0  # the same before compression
    batches_sent: int = 0
    requests: int = 0
    records_failed: int = 0
    batches_retried: int = 0
    batches_split: int = 0
    epochs_bumped: int = 0
    latency_total: float = 0.0  # seconds from request to answer
    latency_max: float = 0.0
    answers: int = 0
    queue_time_total: float = 0.0  # seconds from a batch's first record to its first request
    waits_for_room: int = 0

    def answered(self, seconds: float) -> None:
        self.answers += 1
        self.latency_total += seconds
        self.latency_max = max(self.latency_max, seconds)

    def shown(self, *, buffer_total: int, buffer_used: int, in_flight: int) -> dict[str, float]:
        """A snapshot. Totals since the start; means over the same time."""
        return {
            "record-send-total": self.records_sent,
            "record-error-total": self.records_failed,
            "record-retry-total": self.batches_retried,
            "byte-total": self.bytes_sent,
            "batch-split-total": self.batches_split,
            "batch-size-avg": _mean(self.bytes_sent, self.batches_sent),
            "records-per-batch-avg": _mean(self.records_sent, self.batches_sent),
            "compression-rate-avg": _mean(self.bytes_sent, self.bytes_plain),
            "request-total": self.requests,
            "request-latency-avg": _mean(self.latency_total, self.answers) * 1000,
            "request-latency-max": self.latency_max * 1000,
            "record-queue-time-avg": _mean(self.queue_time_total, self.batches_sent) * 1000,
            "requests-in-flight": in_flight,
            "epoch-bump-total": self.epochs_bumped,
            "buffer-total-bytes": buffer_total,
            "buffer-available-bytes": buffer_total - buffer_used,
            "bufferpool-wait-total": self.waits_for_room,
        }


def _mean(total: float, count: float) -> float:
    return total / count if count else 0.0
