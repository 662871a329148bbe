"""Incremental fetch sessions with one node (KIP-227): only what changed is sent.

A machine: `ask` says what a request must contain so that the broker's idea of the session becomes
what is wanted now; `answered` and `lost` tell what became of it. One request is under way at once.
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
# The broker's memory of the session is not ours any more; the next request starts a new one.
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
class Want:
    """A partition to be read, as a request says it."""

    tp: TopicPartition
    topic_id: bytes
    offset: int
    leader_epoch: int


@dataclass(slots=True)
class FetchAsk:
    """The parts of a request that belong to the session."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


@dataclass(slots=True)
class FetchSession:
    partition_bytes_max: int
    is_lasting: bool = True  # otherwise each request stands for itself
    session_id: int = NO_SESSION
    epoch: int = _FIRST_EPOCH
    with_ids: bool = False
    # What the broker has, or will have when it has read the request that is under way.
    known: dict[TopicPartition, Want] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)

    def ask(self, wants: Iterable[Want], *, with_ids: bool) -> FetchAsk:
        """What to send so that these are read. `with_ids`: topics are named by their ids."""
        wanted = {want.tp: want for want in wants}
        if not self.is_lasting:
            self.epoch = _FIRST_EPOCH
        if with_ids != self.with_ids and self.epoch != _FIRST_EPOCH:
            self.epoch = _FIRST_EPOCH  # a session knows topics by one or by the other
        self.with_ids = with_ids
        forgotten: list[Want] = []
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
        return FetchAsk(self.session_id, epoch, self._topics(changed), self._forgotten(forgotten))

    def topic(self, name: str, topic_id: bytes) -> str | None:
        """The name of a topic in an answer, or None if it is not in the session."""
        return self.names.get(topic_id) if self.with_ids else name

    def answered(self, response: FetchResponse) -> bool:
        """Takes note of an answer; whether it has partitions that count."""
        code = response.error_code
        if code:
            # With this id the broker may still have a session: name it, so that it is replaced.
            if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND or code not in _BROKEN:
                self.session_id = NO_SESSION
            self.epoch = _FIRST_EPOCH
            return False
        if response.session_id == NO_SESSION:  # the broker has no room for sessions
            self.session_id = NO_SESSION
            self.epoch = _FIRST_EPOCH
        elif response.session_id != self.session_id:
            self.session_id = response.session_id
            self.epoch = 1
        else:
            self.epoch = self.epoch + 1 if self.epoch < _EPOCH_MAX else 1
        return True

    def lost(self) -> None:
        """The request got no answer: nobody knows whether the broker has seen it."""
        self.epoch = _FIRST_EPOCH

    def last(self) -> FetchAsk | None:
        """What ends the session, if there is one."""
        if self.session_id == NO_SESSION:
            return None
        return FetchAsk(self.session_id, _FINAL_EPOCH, [], [])

    def _topics(self, wants: list[Want]) -> list[FetchTopic]:
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

    def _forgotten(self, wants: list[Want]) -> list[ForgottenTopic]:
        topics: dict[tuple[str, bytes], ForgottenTopic] = {}
        for want in wants:
            key = (want.tp.topic, want.topic_id)
            if key not in topics:
                topics[key] = ForgottenTopic(topic=key[0], topic_id=key[1], partitions=[])
            topics[key].partitions.append(want.tp.partition)
        return list(topics.values())


def all_have_ids(wants: Iterable[Want]) -> bool:
    return all(want.topic_id != ZERO_ID for want in wants)
