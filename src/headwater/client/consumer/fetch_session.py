"""An incremental fetch session with one node (KIP-227): requests carry only what has changed.

A machine: `next_request` returns what a request must contain so that the broker's session becomes
what is wanted now; `on_response` and `on_no_response` report its outcome. At most one request is
in flight.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater.errors import ErrorCode
from headwater.model import ZERO_ID, TopicPartition
from headwater.protocol.messages.fetch import (
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

NO_SESSION = 0
_FIRST_EPOCH = 0
_FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1
# The broker's session differs from this one; the next request starts a new one.
_BROKEN = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


@dataclass(frozen=True, slots=True)
class WantedPartition:
    """A partition to read, with what a request says about it."""

    tp: TopicPartition
    topic_id: bytes
    offset: int
    leader_epoch: int


@dataclass(slots=True)
class SessionRequest:
    """The parts of a fetch request that belong to the session."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


@dataclass(slots=True)
class FetchSession:
    """The session as this client believes the broker has it."""

    partition_bytes_max: int
    is_lasting: bool = True  # otherwise each request is complete in itself
    session_id: int = NO_SESSION
    epoch: int = _FIRST_EPOCH
    with_ids: bool = False
    # What the broker has, or will have when it has read the request in flight.
    known: dict[TopicPartition, WantedPartition] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)

    def next_request(self, wants: Iterable[WantedPartition], *, with_ids: bool) -> SessionRequest:
        """Returns what to send so that these are read; `with_ids` names topics by id."""
        wanted = {want.tp: want for want in wants}
        if not self.is_lasting:
            self.epoch = _FIRST_EPOCH
        if with_ids != self.with_ids and self.epoch != _FIRST_EPOCH:
            self.epoch = _FIRST_EPOCH  # a session has either names or ids
        self.with_ids = with_ids
        forgotten: list[WantedPartition] = []
        if self.epoch == _FIRST_EPOCH:
            changed = list(wanted.values())
        else:
            known = self.known
            forgotten = [
                want
                for tp, want in known.items()
                if tp not in wanted or wanted[tp].topic_id != want.topic_id
            ]
            changed = [want for tp, want in wanted.items() if known.get(tp) != want]
        self.known = wanted
        self.names = {want.topic_id: tp.topic for tp, want in wanted.items()} if with_ids else {}
        epoch = self.epoch if self.is_lasting else _FINAL_EPOCH
        return SessionRequest(
            self.session_id, epoch, self._topics(changed), self._forgotten(forgotten)
        )

    def topic(self, name: str, topic_id: bytes) -> str | None:
        """Returns the name of a topic in a response, or None if it is not in the session."""
        return self.names.get(topic_id) if self.with_ids else name

    def on_response(self, response: FetchResponse) -> bool:
        """Applies a response; returns whether its partitions are valid."""
        code = response.error_code
        if code:
            # The broker may still have a session with this id: naming it has it replaced.
            if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND or code not in _BROKEN:
                self.session_id = NO_SESSION
            self.epoch = _FIRST_EPOCH
            return False
        if response.session_id == NO_SESSION:  # the broker's cache of sessions is full
            self.session_id = NO_SESSION
            self.epoch = _FIRST_EPOCH
        elif response.session_id != self.session_id:
            self.session_id = response.session_id
            self.epoch = 1
        else:
            self.epoch = self.epoch + 1 if self.epoch < _EPOCH_MAX else 1
        return True

    def on_no_response(self) -> None:
        """Starts a new session, since it is unknown whether the broker has seen the request."""
        self.epoch = _FIRST_EPOCH

    def closing_request(self) -> SessionRequest | None:
        """Returns the request that ends the session, if there is one."""
        if self.session_id == NO_SESSION:
            return None
        return SessionRequest(self.session_id, _FINAL_EPOCH, [], [])

    def _topics(self, wants: list[WantedPartition]) -> list[FetchTopic]:
        topics: dict[tuple[str, bytes], FetchTopic] = {}
        for want in wants:
            key = (want.tp.topic, want.topic_id)
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = FetchTopic(
                    topic=want.tp.topic, topic_id=want.topic_id, partitions=[]
                )
            topic.partitions.append(
                FetchPartition(
                    partition=want.tp.partition,
                    current_leader_epoch=want.leader_epoch,
                    fetch_offset=want.offset,
                    partition_max_bytes=self.partition_bytes_max,
                )
            )
        return list(topics.values())

    def _forgotten(self, wants: list[WantedPartition]) -> list[ForgottenTopic]:
        topics: dict[tuple[str, bytes], ForgottenTopic] = {}
        for want in wants:
            key = (want.tp.topic, want.topic_id)
            if key not in topics:
                topics[key] = ForgottenTopic(topic=key[0], topic_id=key[1], partitions=[])
            topics[key].partitions.append(want.tp.partition)
        return list(topics.values())


def all_have_ids(wants: Iterable[WantedPartition]) -> bool:
    return all(want.topic_id != ZERO_ID for want in wants)
