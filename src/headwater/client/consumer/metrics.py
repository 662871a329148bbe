"""The metrics of a consumer, under the names of Kafka's consumer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater.client.telemetry import DOMAIN
from headwater.model import TopicPartition
from headwater.observability.measures import Window, ratio


@dataclass(slots=True)
class FetchMetrics:
    """Fetch requests and their responses."""

    requests: int = 0
    failures: int = 0
    bytes: int = 0
    responses: int = 0  # with records
    latency: Window = field(default_factory=Window)
    size: Window = field(default_factory=Window)  # bytes of a response with records
    throttle_ms: Window = field(default_factory=Window)

    def shown(self, now: float, *, records: int) -> dict[str, float]:
        return {
            "records-consumed-total": records,
            "bytes-consumed-total": self.bytes,
            "fetch-total": self.requests,
            "fetch-failure-total": self.failures,
            "records-per-request-avg": ratio(records, self.responses),
            **self.latency.shown("fetch-latency", now, scale=1000),
            **self.size.shown("fetch-size", now),
            **self.throttle_ms.shown("fetch-throttle-time", now),
        }


@dataclass(slots=True)
class PollMetrics:
    """The user's polls; a loop over the consumer polls once for each slice."""

    last: float | None = None
    since_before: float = 0.0  # from the poll before the last one to the last
    between: Window = field(default_factory=Window)
    idle: Window = field(default_factory=Window)

    def polled(self, now: float) -> None:
        if self.last is not None:
            self.since_before = now - self.last
            self.between.note(self.since_before, now)
        self.last = now

    def ended(self, now: float) -> None:
        """A poll has returned: the rest of the time is the user's."""
        assert self.last is not None
        took = now - self.last
        self.idle.note(ratio(took, took + self.since_before), now)

    def shown(self, now: float) -> dict[str, float]:
        return {
            "last-poll-seconds-ago": _ago(self.last, now),
            **self.between.shown("time-between-poll", now, scale=1000),
            "poll-idle-ratio-avg": self.idle.shown("idle", now)["idle-avg"],
        }


@dataclass(slots=True)
class GroupMetrics:
    """Commits, heartbeats and rebalances."""

    commits: int = 0
    commit_failures: int = 0
    commit_latency: Window = field(default_factory=Window)
    heartbeats: int = 0
    last_heartbeat: float | None = None
    heartbeat_latency: Window = field(default_factory=Window)
    rebalances: int = 0
    partitions_lost: int = 0
    last_rebalance: float | None = None
    rebalance_total: float = 0.0
    rebalance_latency: Window = field(default_factory=Window)
    rebalancing_since: float | None = None

    def committed(self, began: float, now: float) -> None:
        self.commits += 1
        self.commit_latency.note(now - began, now)

    def heartbeat(self, began: float, now: float) -> None:
        self.heartbeats += 1
        self.last_heartbeat = now
        self.heartbeat_latency.note(now - began, now)

    def rebalancing(self, now: float) -> None:
        """Notes that a rebalance is in progress."""
        if self.rebalancing_since is None:
            self.rebalancing_since = now

    def rebalanced(self, now: float) -> None:
        """Notes that the rebalance in progress, if any, has finished."""
        if self.rebalancing_since is None:
            return
        took = now - self.rebalancing_since
        self.rebalancing_since = None
        self.last_rebalance = now
        self.rebalances += 1
        self.rebalance_total += took
        self.rebalance_latency.note(took, now)

    def shown(self, now: float) -> dict[str, float]:
        return {
            "commit-total": self.commits,
            "commit-failure-total": self.commit_failures,
            **self.commit_latency.shown("commit-latency", now, scale=1000),
            "heartbeat-total": self.heartbeats,
            "last-heartbeat-seconds-ago": _ago(self.last_heartbeat, now),
            **self.heartbeat_latency.shown("heartbeat-response-time", now, scale=1000),
            "rebalance-total": self.rebalances,
            "rebalance-latency-total": self.rebalance_total * 1000,
            "last-rebalance-seconds-ago": _ago(self.last_rebalance, now),
            "partitions-lost-total": self.partitions_lost,
            **self.rebalance_latency.shown("rebalance-latency", now, scale=1000),
        }


@dataclass(slots=True)
class ConsumerMetrics:
    """All metrics of one consumer."""

    fetch: FetchMetrics = field(default_factory=FetchMetrics)
    poll: PollMetrics = field(default_factory=PollMetrics)
    group: GroupMetrics = field(default_factory=GroupMetrics)


_OF_FETCHES = ("bytes-consumed-", "fetch-", "records-")
_OF_GROUP = (
    "assigned-",
    "commit-",
    "heartbeat-",
    "last-heartbeat-",
    "last-rebalance-",
    "partitions-lost-",
    "rebalance-",
)


def pushed_as(name: str) -> str:
    """Returns what stands before the name of a metric when it is pushed: Kafka's group of it."""
    group = "consumer"
    if name.startswith(_OF_FETCHES):
        group = "consumer.fetch.manager"
    elif name.startswith(_OF_GROUP):
        group = "consumer.coordinator"
    return f"{DOMAIN}.{group}."


def distances(name: str, found: Iterable[tuple[TopicPartition, int | None]]) -> dict[str, float]:
    """Names the numbers of partitions that are known: `records-lag{topic="t",partition="0"}`."""
    return {
        f'{name}{{topic="{tp.topic}",partition="{tp.partition}"}}': distance
        for tp, distance in found
        if distance is not None
    }


def _ago(then: float | None, now: float) -> float:
    """Returns the seconds since then; -1 if it never happened, as in Kafka."""
    return -1.0 if then is None else now - then
