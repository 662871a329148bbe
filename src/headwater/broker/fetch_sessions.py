"""Incremental fetch sessions (KIP-227): what a consumer reads, remembered between its requests.

A session keeps the partitions and where each stands, so that a request names only what changed
and an answer carries only what is new. The cache has a fixed number of slots; a full fetch that
finds none works without a session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from headwater.errors import ApiError, ErrorCode

SESSIONLESS_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
_EVICT_AFTER_SECONDS = 120.0


class Wanted:
    """One partition that a fetch asks for, and what its last answer said."""

    __slots__ = (
        "bytes_max",
        "current_epoch",
        "known_high_watermark",
        "last_fetched_epoch",
        "log_start",
        "offset",
        "partition",
        "sent_error",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, partition: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.offset = 0
        self.bytes_max = 0
        self.current_epoch = -1
        self.last_fetched_epoch = -1
        self.log_start = -1
        self.known_high_watermark = -1
        self.sent_high_watermark = -2  # nothing sent yet: the first answer always counts as news
        self.sent_log_start = -2
        self.sent_error = 0

    def is_news(
        self, *, error: int, has_records: bool, high_watermark: int, log_start: int
    ) -> bool:
        """Whether an answer differs from the one before; remembers it."""
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
    wanted: dict[Key, Wanted] = field(default_factory=dict)


class FetchSessions:
    """The cache of sessions of one broker."""

    def __init__(self, slots_max: int, random: Random) -> None:
        self._slots_max = slots_max
        self._random = random
        self._sessions: dict[int, Session] = {}  # in the order of use, the longest unused first

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, *, now: float, uses_topic_ids: bool, privileged: bool) -> Session | None:
        """A new session with the next epoch 1, if there is a slot."""
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
                del self._sessions[session_id]
                return True
        return False

    def find(self, session_id: int, epoch: int, *, now: float, uses_topic_ids: bool) -> Session:
        """The session of an incremental fetch, moved on to its next epoch."""
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
        self._sessions.pop(session_id, None)
