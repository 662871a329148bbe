"""The state of a broker, its fetch sessions, and the logs that it cannot compact."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.broker.cleaning import Cleaning
from headwater.broker.fetch_sessions import FetchSessions
from headwater.broker.lifecycle import BrokerState
from headwater.observability.registry import Family, Item, Labels, Sample, one
from headwater.storage import LogDirs

_SESSIONS = "kafka_server_fetchsessioncache"
_AT_ONCE = 10  # sessions that are looked at in one step


class BrokerCollector:
    def __init__(
        self,
        state: Callable[[], BrokerState],
        sessions: FetchSessions,
        cleaning: Cleaning,
        log_dirs: LogDirs,
    ) -> None:
        self._state = state
        self._sessions = sessions
        self._cleaning = cleaning
        self._log_dirs = log_dirs

    def collect(self) -> Iterator[Item]:
        yield from one(
            "kafka_server_kafkaserver_brokerstate",
            "gauge",
            "State of the broker: 1 starting, 2 registered and fenced, 3 running, 6 shutting down.",
            int(self._state()),
        )
        yield from self._fetch_sessions()
        yield Family(
            "kafka_log_logcleanermanager_uncleanable_partitions_count",
            "gauge",
            "Partitions whose compaction failed; they are not compacted until the next start.",
        )
        failed = self._cleaning.uncleanable()
        for directory in self._log_dirs.directories:
            count = sum(log.health is directory.health for log in failed)
            yield Sample(Labels(logDirectory=directory.path), count)

    def _fetch_sessions(self) -> Iterator[Item]:
        sessions = self._sessions
        partitions = 0
        for number, session in enumerate(sessions.all()):
            partitions += len(session.wanted)
            if number % _AT_ONCE == 0:
                yield None
        for name, what, value in (
            ("numincrementalfetchsessions", "Fetch sessions.", len(sessions)),
            ("numincrementalfetchpartitionscached", "Partitions of fetch sessions.", partitions),
        ):
            yield from one(f"{_SESSIONS}_{name}", "gauge", what, value)
        yield from one(
            f"{_SESSIONS}_incrementalfetchsessionevictions_total",
            "counter",
            "Fetch sessions that were evicted for others: the cache is too small.",
            sessions.evictions,
        )
