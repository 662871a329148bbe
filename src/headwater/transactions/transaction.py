"""The logged state of a transactional id, and the transitions from one record to the next.

A `Transaction` never changes: a transition returns the next one, which becomes a record, and the
shard keeps what it reads from that record. The rules are those of Kafka 4.3 (KIP-98, KIP-360,
KIP-890), and those of KIP-939 for a transaction that was kept for a new instance of its producer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from headwater.errors import ApiError, ErrorCode
from headwater.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition
from headwater.protocol.records.transactions import PartitionsSchema, TransactionLogValue

EPOCH_MAX = 2**15 - 1
# The timeout of a transaction that takes part in a two-phase commit (KIP-939): none.
NO_TIMEOUT_MS = 2**31 - 1
# From this transaction version on, the end of a transaction raises the epoch (KIP-890).
_EPOCH_RAISED_SINCE = 2
# From this transaction version on, records have tagged fields.
_TAGGED_FIELDS_SINCE = 1


class State(IntEnum):
    """The states of a transactional id, by the numbers that records have.

    The last two are names that clients may ask for. An id that expires is deleted by one record,
    and a transaction is fenced and aborted by one record, so that no id is ever seen in them.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that clients see: `PrepareCommit`."""
        return self.name.title().replace("_", "")


STATES_BY_TITLE: Mapping[str, State] = {state.title: state for state in State}

_PREPARING = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
_COMPLETE = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
_EXPIRES = frozenset({State.EMPTY}) | _COMPLETE


class NeedsProducerId(ApiError):
    """The decision needs a new producer id. Nothing has changed: get one, and ask again with it.

    The code is what Kafka answers while it has no producer ids at hand.
    """

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer id at hand")


class Identity(NamedTuple):
    """A producer id with an epoch."""

    producer_id: int
    epoch: int

    @property
    def is_exhausted(self) -> bool:
        """Whether the id has no epoch left for a client: the last one is kept for fencing."""
        return self.epoch >= EPOCH_MAX - 1

    @property
    def raised(self) -> Identity:
        return Identity(self.producer_id, min(self.epoch + 1, EPOCH_MAX))

    def successor(self, new_producer_id: int | None) -> Identity:
        """Returns what a client may go on with: the next epoch, or a new id if there is none."""
        return first_of(new_producer_id) if self.is_exhausted else self.raised


def first_of(new_producer_id: int | None) -> Identity:
    """Returns a new id with its first epoch; raises NeedsProducerId without an id."""
    if new_producer_id is None:
        raise NeedsProducerId
    return Identity(new_producer_id, 0)


def raises_epoch(transaction_version: int) -> bool:
    """Returns whether transactions of this version raise the epoch when they end."""
    return transaction_version >= _EPOCH_RAISED_SINCE


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id as its latest record describes it."""

    state: State
    # The producer of the transaction, and the one in whose name its markers are written.
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    updated_ms: int
    started_ms: int = NO_TIMESTAMP
    partitions: tuple[TopicPartition, ...] = ()  # sorted
    # The id before the latest change, to recognise a producer that missed it.
    previous_producer_id: int = NO_PRODUCER_ID
    # What follows the end of the transaction, where that is not `producer_id` and its epoch. No
    # epoch stands for the first one of a new id, as Kafka writes it. While a transaction is
    # ongoing, both are set if it was kept for a new instance (KIP-939), which has them already.
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    # The version of the requests that the latest change was made by: 0 or 2.
    client_version: int = 0
    # Fields of a newer version of Kafka.
    unknown_tags: Mapping[int, bytes] | None = None

    # Reading

    @property
    def is_preparing(self) -> bool:
        """Whether the outcome is decided and markers are still missing."""
        return self.state in _PREPARING

    @property
    def is_complete(self) -> bool:
        return self.state in _COMPLETE

    @property
    def may_expire(self) -> bool:
        return self.state in _EXPIRES

    @property
    def commits(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    @property
    def is_kept(self) -> bool:
        """Whether the transaction was kept for a new instance of its producer (KIP-939)."""
        return self.next_producer_epoch != NO_PRODUCER_EPOCH

    @property
    def writer(self) -> Identity:
        """The producer that writes the transaction."""
        return Identity(self.producer_id, self.producer_epoch)

    @property
    def client(self) -> Identity:
        """The producer that requests must name: the writer, or the instance it was kept for."""
        if self.is_kept:
            return Identity(self.next_producer_id, self.next_producer_epoch)
        return self.writer

    @property
    def last_epoch(self) -> int:
        """The client's epoch before its transaction ended, where the record tells."""
        if not (raises_epoch(self.client_version) and (self.is_preparing or self.is_complete)):
            return NO_PRODUCER_EPOCH
        if self.producer_epoch == 0:  # the id was replaced when its epochs were exhausted
            return EPOCH_MAX - 1
        return self.producer_epoch - 1

    def has_timed_out(self, now_ms: int) -> bool:
        return (
            self.state is State.ONGOING
            and self.timeout_ms != NO_TIMEOUT_MS
            and self.started_ms + self.timeout_ms < now_ms
        )

    # Who asks

    def check_client(self, asked: Identity) -> None:
        """Raises ApiError unless the request comes from the current client."""
        client = self.client
        if asked.producer_id != client.producer_id:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if asked.epoch != client.epoch:
            raise ApiError(ErrorCode.PRODUCER_FENCED)

    def has_missed_the_end(self, asked: Identity) -> bool:
        """Returns whether a client has this identity because it missed the reply that raised its
        epoch at the end of the transaction.

        An epoch that is one behind tells nothing if a request of version 1 ended the transaction,
        which does not raise it: then the client was fenced by another instance.
        """
        if not (self.is_complete and raises_epoch(self.client_version)):
            return False
        if self.producer_epoch == EPOCH_MAX:  # never given to a client; Kafka 4.0 may have left it
            return False
        if asked.producer_id == self.producer_id:
            return asked.epoch + 1 == self.producer_epoch
        before = Identity(self.previous_producer_id, EPOCH_MAX - 1)
        return asked == before and self.producer_epoch == 0

    def next_client(
        self, expected: Identity | None, *, last_epoch: int, new_producer_id: int | None
    ) -> Identity:
        """Returns the identity that InitProducerId gives to a client that expects to have this one
        (KIP-360), or to a new one: the current identity if the request repeats the latest, whose
        reply was lost."""
        client = self.client
        if expected is None:
            return client.successor(new_producer_id)
        is_repeated = expected.epoch == last_epoch != client.epoch
        is_previous = expected.producer_id == self.previous_producer_id and expected.is_exhausted
        if expected.producer_id != client.producer_id and not (is_previous and is_repeated):
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        if is_repeated and client.epoch < EPOCH_MAX:
            return client
        if not is_repeated and expected.epoch != client.epoch:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        return client.successor(new_producer_id)

    # Transitions

    @classmethod
    def created(cls, client: Identity, *, timeout_ms: int, now_ms: int) -> Transaction:
        return cls(
            State.EMPTY,
            *client,
            timeout_ms=timeout_ms,
            updated_ms=now_ms,
            previous_producer_id=client.producer_id,
        )

    def initialized(self, client: Identity, *, timeout_ms: int, now_ms: int) -> Transaction:
        """The client has this id and epoch, and no transaction."""
        return Transaction(
            State.EMPTY,
            *client,
            timeout_ms=timeout_ms,
            updated_ms=now_ms,
            previous_producer_id=self._previous(client),
            client_version=self.client_version,
            unknown_tags=self.unknown_tags,
        )

    def kept(self, client: Identity, *, timeout_ms: int, now_ms: int) -> Transaction:
        """The ongoing transaction goes on, and another instance will end it."""
        return replace(
            self,
            # A transaction of a two-phase commit never times out, not even under a new owner.
            timeout_ms=NO_TIMEOUT_MS if self.timeout_ms == NO_TIMEOUT_MS else timeout_ms,
            updated_ms=now_ms,
            previous_producer_id=self._previous(client),
            next_producer_id=client.producer_id,
            next_producer_epoch=client.epoch,
        )

    def _previous(self, client: Identity) -> int:
        """Returns the id before the one that the client has now. A repeated request changes
        nothing, so that it can be repeated once more."""
        before = self.client
        return self.previous_producer_id if client == before else before.producer_id

    def with_partitions(
        self, added: Iterable[TopicPartition], *, client_version: int, now_ms: int
    ) -> Transaction:
        """The transaction writes to these partitions, too; the first ones start it."""
        return replace(
            self,
            state=State.ONGOING,
            partitions=tuple(sorted({*self.partitions, *added})),
            started_ms=self.started_ms if self.state is State.ONGOING else now_ms,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            client_version=client_version,
        )

    def prepared(
        self,
        *,
        commits: bool,
        marker_epoch: int,
        client: Identity,
        client_version: int,
        now_ms: int,
    ) -> Transaction:
        """The outcome is decided. Markers have `marker_epoch`; then the client goes on with
        `client`."""
        if self.is_kept:
            follows = client
        elif client.producer_id != self.producer_id:
            assert client.epoch == 0, f"a new id starts with epoch 0, not {client.epoch}"
            follows = Identity(client.producer_id, NO_PRODUCER_EPOCH)
        else:
            assert client.epoch == marker_epoch, f"{client.epoch} is not {marker_epoch}"
            follows = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        return replace(
            self,
            state=State.PREPARE_COMMIT if commits else State.PREPARE_ABORT,
            producer_epoch=marker_epoch,
            # A transaction that never began is aborted as if it began now.
            started_ms=self.started_ms if self.state is State.ONGOING else now_ms,
            updated_ms=now_ms,
            previous_producer_id=self.client.producer_id,
            next_producer_id=follows.producer_id,
            next_producer_epoch=follows.epoch,
            client_version=client_version,
        )

    def ended(
        self,
        *,
        commits: bool,
        client_version: int,
        new_producer_id: int | None,
        now_ms: int,
    ) -> Transaction:
        """The outcome is decided by the rules of version 2: markers have the next epoch, and the
        client goes on with its own next one."""
        return self.prepared(
            commits=commits,
            marker_epoch=self.writer.raised.epoch,
            client=self.client.successor(new_producer_id),
            client_version=client_version,
            now_ms=now_ms,
        )

    def completed(self, *, now_ms: int) -> Transaction:
        """All markers are written."""
        after = self.writer
        if self.next_producer_id != NO_PRODUCER_ID:
            after = Identity(self.next_producer_id, max(self.next_producer_epoch, 0))
        previous = self.previous_producer_id
        return replace(
            self,
            state=State.COMPLETE_COMMIT if self.commits else State.COMPLETE_ABORT,
            producer_id=after.producer_id,
            producer_epoch=after.epoch,
            updated_ms=now_ms,
            partitions=(),
            previous_producer_id=self.producer_id if previous == NO_PRODUCER_ID else previous,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
        )

    # Records

    @classmethod
    def of(cls, value: TransactionLogValue) -> Transaction:
        return cls(
            State(value.transaction_status),
            value.producer_id,
            value.producer_epoch,
            value.transaction_timeout_ms,
            value.transaction_last_update_timestamp_ms,
            value.transaction_start_timestamp_ms,
            tuple(
                sorted(
                    TopicPartition(topic.topic, index)
                    for topic in value.transaction_partitions or ()
                    for index in topic.partition_ids
                )
            ),
            value.previous_producer_id,
            value.next_producer_id,
            value.next_producer_epoch,
            value.client_transaction_version,
            value.unknown_tags or None,
        )

    def value(self, transaction_version: int) -> TransactionLogValue:
        """Returns the record's value. At transaction version 0 it has no tagged fields, except
        where a client of version 2 needs them: such a client may still be there after a downgrade,
        and its transaction must survive a change of the coordinator."""
        value = TransactionLogValue(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=self._topics(),
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
        )
        is_tagged = (
            transaction_version >= _TAGGED_FIELDS_SINCE
            or (self.client_version > 0 and self.state is not State.EMPTY)
            or self.next_producer_id != NO_PRODUCER_ID
        )
        if is_tagged:
            value.previous_producer_id = self.previous_producer_id
            value.next_producer_id = self.next_producer_id
            value.next_producer_epoch = self.next_producer_epoch
            value.client_transaction_version = self.client_version
            value.unknown_tags = dict(self.unknown_tags) if self.unknown_tags else None
        return value

    def _topics(self) -> list[PartitionsSchema] | None:
        if self.state is State.EMPTY:
            return None
        return [
            PartitionsSchema(topic=topic, partition_ids=[tp.partition for tp in partitions])
            for topic, partitions in groupby(self.partitions, attrgetter("topic"))
        ]


def value_version(value: TransactionLogValue) -> int:
    """Returns the version to write a value in: 1 if it has tagged fields."""
    is_tagged = (
        value.previous_producer_id != NO_PRODUCER_ID
        or value.next_producer_id != NO_PRODUCER_ID
        or value.next_producer_epoch != NO_PRODUCER_EPOCH
        or value.client_transaction_version != 0
        or value.unknown_tags
    )
    return 1 if is_tagged else 0
