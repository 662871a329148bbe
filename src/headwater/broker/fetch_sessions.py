"""Incremental fetch sessions (KIP-227): the partitions a client reads, kept between its requests.

A session knows the position of each partition, so that a request names only what changed and a
response carries only what is new. The cache has a fixed number of slots; a full fetch that finds
none works without a session.

Followers have sessions of another kind: they stay subscribed to their partitions (`Feed`), and a
fetch reads only those that were named or have news. With thousands of partitions, most are idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.fetch import FetchPartition, FetchRequest
from headwater.replication.leader import FetchClock

if TYPE_CHECKING:
    from headwater.broker.partition import Partition

SESSIONLESS_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
_EVICT_AFTER_SECONDS = 120.0


class Parked(Protocol):
    """A follower's fetch that waits for records."""

    def on_bytes(self, added_bytes: int) -> None: ...

    def wake(self) -> None: ...


class Feed:
    """Collects the partitions that a follower's next fetch has to read."""

    __slots__ = ("clock", "parked", "ready", "replica_id")

    def __init__(self, replica_id: int) -> None:
        self.replica_id = replica_id
        self.clock = FetchClock()
        self.ready: dict[Wanted, None] = {}  # the longest waiting first
        self.parked: Parked | None = None


class Wanted:
    """One partition that a fetch asks for, and what the last response said of it."""

    __slots__ = (
        "bytes_max",
        "current_epoch",
        "feed",
        "last_fetched_epoch",
        "log_start",
        "offset",
        "partition",
        "sent_high_watermark",
        "sent_log_start",
        "source",
        "topic",
        "topic_id",
    )

    def __init__(
        self, topic: str, topic_id: bytes, partition: int, feed: Feed | None = None
    ) -> None:
        self.feed = feed  # of the follower that asks
        self.source: Partition | None = None  # to which it is subscribed
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.offset = 0
        self.bytes_max = 0
        self.current_epoch = -1
        self.last_fetched_epoch = -1
        self.log_start = -1
        self.sent_high_watermark = -2  # nothing sent yet: the first response always counts as news
        self.sent_log_start = -2

    def ask(self, asked: FetchPartition) -> None:
        """Takes over what a request says of the partition."""
        self.offset = asked.fetch_offset
        self.bytes_max = asked.partition_max_bytes
        self.current_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start = asked.log_start_offset

    # Subscribed to a partition (`partition.Subscriber`)

    def subscribe(self, source: Partition) -> None:
        """Follows the partition from now on, instead of an earlier session of the replica."""
        assert self.feed is not None, "only followers stay subscribed"
        if self.source is not source:
            self.unsubscribe()
            self.source = source
        source.subscribers[self.feed.replica_id] = self

    def unsubscribe(self) -> None:
        source, feed = self.source, self.feed
        if source is not None and feed is not None:
            if source.subscribers.get(feed.replica_id) is self:
                del source.subscribers[feed.replica_id]
            self.source = None

    def on_more(self, added_bytes: int) -> None:
        feed = self.feed
        assert feed is not None
        feed.ready[self] = None
        if feed.parked is not None:
            feed.parked.on_bytes(added_bytes)

    def on_news(self) -> None:
        assert self.feed is not None
        self.feed.ready[self] = None

    def on_changed(self) -> None:
        feed = self.feed
        assert feed is not None
        feed.ready[self] = None
        if feed.parked is not None:
            feed.parked.wake()

    def is_news(
        self, *, error: int, has_records: bool, high_watermark: int, log_start: int
    ) -> bool:
        """Returns whether a response differs from the one before, and remembers it."""
        news = (
            has_records
            or high_watermark != self.sent_high_watermark
            or log_start != self.sent_log_start
            or error != 0
        )
        self.sent_high_watermark = high_watermark
        self.sent_log_start = log_start
        if error:
            # An error is news each time, and so is its end.
            self.sent_high_watermark = -2
        return news


Key = tuple[str | bytes, int]


@dataclass(slots=True)
class Session:
    id: int
    uses_topic_ids: bool
    privileged: bool  # followers' sessions are not given up for those of consumers
    epoch: int
    used_at: float
    feed: Feed | None = None  # of a follower's session
    wanted: dict[Key, Wanted] = field(default_factory=dict)  # in the order they are read

    def update(self, request: FetchRequest) -> list[Wanted]:
        """Adds, moves and forgets partitions as an incremental request says. Returns those that it
        names."""
        named: list[Wanted] = []
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if self.uses_topic_ids else topic.topic
            for partition in topic.partitions:
                self._forget((name, partition))
        for key, asked in _asked(request, self.uses_topic_ids):
            known = self.wanted.get(key)
            if known is None:
                known = self.wanted[key] = asked.wanted(self.feed)
            else:
                known.ask(asked.partition)
            named.append(known)
        return named

    def _forget(self, key: Key) -> None:
        gone = self.wanted.pop(key, None)
        if gone is not None and self.feed is not None:
            gone.unsubscribe()
            self.feed.ready.pop(gone, None)

    def close(self) -> None:
        """Ends the subscriptions of a follower's session."""
        for wanted in self.wanted.values():
            wanted.unsubscribe()

    def rotate(self, sent: Iterable[Wanted]) -> None:
        """Moves the partitions that were sent to the end of the line, so that one busy partition
        cannot starve the others."""
        for wanted in sent:
            key = (wanted.topic_id if self.uses_topic_ids else wanted.topic, wanted.partition)
            if key in self.wanted:
                self.wanted[key] = self.wanted.pop(key)


class Selection(NamedTuple):
    """The partitions that one fetch reads, and the session they belong to, if any. An incremental
    fetch is answered with what is new."""

    wanted: list[Wanted]
    session: Session | None
    is_incremental: bool
    feed: Feed | None = None  # of a follower; `wanted` are those that the request names


class _Asked(NamedTuple):
    topic: str
    topic_id: bytes
    partition: FetchPartition

    def wanted(self, feed: Feed | None) -> Wanted:
        wanted = Wanted(self.topic, self.topic_id, self.partition.partition, feed)
        wanted.ask(self.partition)
        return wanted


def _asked(request: FetchRequest, by_id: bool) -> Iterator[tuple[Key, _Asked]]:
    for topic in request.topics:
        name = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            yield (name, partition.partition), _Asked(topic.topic, topic.topic_id, partition)


class FetchSessions:
    """The cache of sessions of one broker."""

    def __init__(self, slots_max: int, random: Random) -> None:
        self._slots_max = slots_max
        self._random = random
        self._sessions: dict[int, Session] = {}  # in the order of use, the longest unused first
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def all(self) -> tuple[Session, ...]:
        return tuple(self._sessions.values())

    def select(
        self, request: FetchRequest, *, by_id: bool, now: float, replica_id: int = -1
    ) -> Selection:
        """Finds or creates the session of a request; returns the partitions that it reads, for a
        follower only those that it names."""
        epoch = request.session_epoch
        if epoch not in (SESSIONLESS_EPOCH, INITIAL_EPOCH):
            session = self.find(request.session_id, epoch, now=now, uses_topic_ids=by_id)
            named = session.update(request)
            if session.feed is not None:
                return Selection(named, session, True, session.feed)
            if session.wanted:
                return Selection(list(session.wanted.values()), session, True)
            self.remove(session.id)
            return Selection([], None, True)
        self.remove(request.session_id)
        feed = Feed(replica_id) if replica_id >= 0 else None
        wanted = {key: asked.wanted(feed) for key, asked in _asked(request, by_id)}
        begun: Session | None = None
        if epoch == INITIAL_EPOCH:
            begun = self.create(now=now, uses_topic_ids=by_id, privileged=feed is not None)
            if begun is not None:
                begun.feed = feed
                begun.wanted = wanted
        return Selection(list(wanted.values()), begun, False, feed)

    def create(self, *, now: float, uses_topic_ids: bool, privileged: bool) -> Session | None:
        """Creates a session, whose next epoch is 1, if there is a slot."""
        if self._slots_max <= 0:
            return None
        if len(self._sessions) >= self._slots_max and not self._evict(now, privileged):
            return None
        while True:
            session_id = self._random.randrange(1, 2**31 - 1)
            if session_id not in self._sessions:
                break
        session = Session(session_id, uses_topic_ids, privileged, 1, now)
        self._sessions[session_id] = session
        return session

    def _evict(self, now: float, privileged: bool) -> bool:
        for session_id, session in self._sessions.items():
            unused = now - session.used_at > _EVICT_AFTER_SECONDS
            if unused or (privileged and not session.privileged):
                self.remove(session_id)
                self.evictions += 1
                return True
        return False

    def find(self, session_id: int, epoch: int, *, now: float, uses_topic_ids: bool) -> Session:
        """Returns the session of an incremental fetch and advances its epoch."""
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {session_id}")
        if session.epoch != epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"session {session_id} is at epoch {session.epoch}, not {epoch}",
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"session {session_id} was begun {'with' if session.uses_topic_ids else 'without'}"
                " topic ids",
            )
        session.epoch = session.epoch + 1 if session.epoch < 2**31 - 1 else 1
        session.used_at = now
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None and session.feed is not None:
            session.close()
