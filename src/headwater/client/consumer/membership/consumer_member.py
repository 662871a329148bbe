"""A member of a consumer group (KIP-848) as a machine: the heartbeat is its only request.

The coordinator divides the partitions and sends each member its target. The member moves there step
by step: `poll` gives up what is not in the target and takes over what is new, and the next
heartbeat reports what the member owns. A heartbeat carries only the fields that have changed since
the last response; after an error it carries all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from headwater.client.consumer.membership.member import (
    DONE,
    JOIN,
    WAIT,
    Assign,
    Lose,
    MembershipSettings,
    Revoke,
    Step,
)
from headwater.client.errors import ClientError, CommitFailed, error_for
from headwater.client.requests.offset_commit import GroupMetadata
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2

IdPartition: TypeAlias = tuple[bytes, int]

UNSUPPORTED_PROTOCOL = (
    "the broker does not support group_protocol='consumer' (it needs Kafka 4.0, and may be "
    "disabled); use group_protocol='classic'"
)
_COORDINATOR_GONE = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
_NO_MEMBER = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}


class Phase(Enum):
    OUTSIDE = "not a member"
    JOINING = "the first heartbeat has no response yet"
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class HeartbeatFields:
    """The fields of a heartbeat that may be left out when the coordinator knows them."""

    subscription: tuple[frozenset[str], str | None]
    owned: frozenset[IdPartition]
    reconciled: tuple[frozenset[IdPartition], frozenset[IdPartition]] | None


class ConsumerMember:
    """One consumer's place in a consumer group. `name_of` returns the name of a topic id, or None
    while it is unknown."""

    def __init__(
        self, settings: MembershipSettings, name_of: Callable[[bytes], str | None]
    ) -> None:
        self.settings = settings
        self.phase = Phase.OUTSIDE
        self.member_id = ""
        self.epoch = JOIN_EPOCH
        self.topics: frozenset[str] = frozenset()
        self.regex: str | None = None
        self.follows_pattern = False  # `topics` are those that match now, perhaps none
        self.rejoin = False
        self.failure: Exception | None = None
        self.fenced = False
        self._name_of = name_of
        self._owned: dict[IdPartition, TopicPartition] = {}
        self._lost = False
        self._target: frozenset[IdPartition] | None = None
        # The last target that was reconciled, and the part of it that had names and was taken over.
        self._reconciled: tuple[frozenset[IdPartition], frozenset[IdPartition]] | None = None
        # The fields that the coordinator has confirmed; None if it must get all of them.
        self._known_fields: HeartbeatFields | None = None
        self._heartbeat_due = False
        self._interval = 0.0
        self._sent_at = 0.0
        self._failures = 0
        self._polled = 0.0

    # Poll

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return frozenset(self._owned.values())

    @property
    def subscribed(self) -> bool:
        return bool(self.topics) or self.regex is not None or self.follows_pattern

    @property
    def needs_poll(self) -> bool:
        if self.failure is not None or (self._lost and self._owned):
            return True
        if self.phase is Phase.MEMBER:
            return self._target is not None and not self._is_reconciled(self._target)
        return self.phase is Phase.OUTSIDE and self.rejoin and self.subscribed

    def next_step(self) -> Step:
        if self._lost and self._owned:
            return Lose(sorted(self._owned.values()))
        if self.phase is Phase.JOINING:
            return WAIT
        if self.phase is Phase.OUTSIDE:
            return JOIN if self.rejoin and self.subscribed else DONE
        if self._target is None:
            return WAIT
        if self._is_reconciled(self._target):
            return DONE
        resolved = self._resolved()
        if gone := self._owned.keys() - resolved:
            return Revoke(sorted(self._owned[each] for each in gone))
        return Assign(sorted(map(self._named, resolved - self._owned.keys())))

    def on_given_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes partitions for which `lost` or `revoked` was called."""
        gone = set(partitions)
        self._owned = {key: each for key, each in self._owned.items() if each not in gone}
        if not self._owned:
            self._lost = False

    def take_over(self) -> None:
        """Makes the target, as far as its topics have names, the owned partitions; the next
        heartbeat reports them."""
        assert self._target is not None
        resolved = self._resolved()
        self._owned = {key: self._named(key) for key in resolved}
        self._reconciled = (self._target, resolved)
        self._heartbeat_due = True

    def _is_reconciled(self, target: frozenset[IdPartition]) -> bool:
        """Returns whether all of the target that has a name was taken over. This runs for every
        slice of records, so the usual case, in which all topics have names, is cheap."""
        if self._reconciled is None or self._reconciled[0] is not target:
            return False
        taken = self._reconciled[1]
        return len(taken) == len(target) or taken == self._resolved()

    def unresolved(self) -> frozenset[bytes]:
        """Returns the ids of the target's topics whose names are unknown."""
        if self._target is None:
            return frozenset()
        return frozenset(topic for topic, _ in self._target - self._resolved())

    def _resolved(self) -> frozenset[IdPartition]:
        assert self._target is not None
        return frozenset(
            each
            for each in self._target
            if each in self._owned or self._name_of(each[0]) is not None
        )

    def _named(self, key: IdPartition) -> TopicPartition:
        if key in self._owned:
            return self._owned[key]
        name = self._name_of(key[0])
        assert name is not None, "only partitions with a name are assigned"
        return TopicPartition(name, key[1])

    def subscribe(
        self, topics: frozenset[str], *, regex: str | None = None, follows_pattern: bool = False
    ) -> None:
        self.topics, self.regex, self.follows_pattern = topics, regex, follows_pattern
        if self.phase is Phase.OUTSIDE:
            self.rejoin = self.subscribed
        elif self._known_fields is None or self._known_fields.subscription != (topics, regex):
            self._heartbeat_due = True

    def take_failure(self) -> Exception | None:
        """Returns the error to raise, once; that of a fenced member every time."""
        failure = self.failure
        if not self.fenced:
            self.failure = None
        return failure

    def on_join_started(self) -> None:
        self.phase = Phase.JOINING
        self.rejoin = False
        self.epoch = JOIN_EPOCH
        self._target = self._reconciled = self._known_fields = None
        self._heartbeat_due = True
        self._failures = 0

    # Heartbeats

    @property
    def keeps_alive(self) -> bool:
        return self.phase is not Phase.OUTSIDE

    def polled(self, now: float) -> None:
        self._polled = now

    @property
    def poll_deadline(self) -> float:
        return self._polled + self.settings.max_poll_interval_ms / 1000

    @property
    def heartbeat_failures(self) -> int:
        return self._failures

    def heartbeat_at(self, backoff: float) -> float:
        """Returns when the next heartbeat is due; `backoff` is the wait after failures."""
        if self._failures:
            return self._sent_at + backoff
        return self._sent_at if self._heartbeat_due else self._sent_at + self._interval

    def heartbeat(self, now: float) -> tuple[ConsumerGroupHeartbeatRequest, HeartbeatFields]:
        """Returns the request, and the fields that the coordinator knows once it has responded."""
        self._sent_at = now
        self._heartbeat_due = False
        fields = HeartbeatFields(
            subscription=(self.topics, self.regex),
            owned=frozenset(self._owned),
            reconciled=self._reconciled,
        )
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.settings.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.settings.instance_id,
        )
        known = self._known_fields
        if known is None:
            request.rack_id = self.settings.rack
            request.rebalance_timeout_ms = self.settings.max_poll_interval_ms
            request.server_assignor = self.settings.remote_assignor
        if known is None or known.subscription != fields.subscription:
            request.subscribed_topic_names = sorted(self.topics)
            # An empty string withdraws a pattern that was sent before.
            was = None if known is None else known.subscription[1]
            request.subscribed_topic_regex = "" if was and not self.regex else self.regex
        if known is None or (known.owned, known.reconciled) != (fields.owned, fields.reconciled):
            request.topic_partitions = _by_topic(self._owned)
        return request, fields

    def on_heartbeat(
        self, response: ConsumerGroupHeartbeatResponse, fields: HeartbeatFields, *, sent_epoch: int
    ) -> bool:
        """Applies a response; returns whether the coordinator must be found again."""
        if self.phase is Phase.OUTSIDE or sent_epoch != self.epoch:
            return False  # the member has left or rejoined since the request
        if response.error_code != ErrorCode.NONE:
            return self._on_refusal(response.error_code, response.error_message)
        self._failures = 0
        self._known_fields = fields
        self.phase = Phase.MEMBER
        if response.member_id:
            self.member_id = response.member_id
        self.epoch = response.member_epoch
        self._interval = response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            target = frozenset(
                (bytes(each.topic_id), number)
                for each in response.assignment.topic_partitions
                for number in each.partitions
            )
            if target != self._target:
                self._target = target
        return False

    def on_heartbeat_failed(self, now: float) -> None:
        """Has the next heartbeat carry all fields: it is unknown whether this one arrived."""
        self._known_fields = None
        self._sent_at = now
        self._failures += 1

    def _on_refusal(self, code: int, message: str | None) -> bool:
        self._known_fields = None
        if code in _NO_MEMBER:
            self._reset()
        elif code in _COORDINATOR_GONE or code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._failures += 1
            return code in _COORDINATOR_GONE
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # Remain a member: the right may be granted, and other topics are readable.
            self._failures += 1
            self.failure = self._error(code, message)
        else:
            self._reset()
            self.failure = self._error(code, message)
            self.fenced = code == ErrorCode.FENCED_INSTANCE_ID
        return False

    def _error(self, code: int, message: str | None) -> ClientError:
        what = f"group {self.settings.group_id!r}"
        match code:
            case ErrorCode.UNSUPPORTED_VERSION:
                message = UNSUPPORTED_PROTOCOL
            case ErrorCode.FENCED_INSTANCE_ID | ErrorCode.UNRELEASED_INSTANCE_ID:
                what += f", group_instance_id {self.settings.instance_id!r}"
                message = None  # the advice for the code is more helpful
            case ErrorCode.UNSUPPORTED_ASSIGNOR:
                what += f", group_remote_assignor {self.settings.remote_assignor!r}"
            case ErrorCode.INVALID_REGULAR_EXPRESSION:
                what += f", pattern {self.regex!r}"
        return error_for(code, what, message)

    def _reset(self) -> None:
        """Ends the membership; partitions that are still owned are lost. The member id is kept."""
        self.phase = Phase.OUTSIDE
        self.epoch = JOIN_EPOCH
        self.rejoin = True
        self._target = self._reconciled = self._known_fields = None
        self._lost = bool(self._owned)

    @property
    def identity(self) -> GroupMetadata:
        if self.fenced and self.failure is not None:
            raise self.failure.with_traceback(None)
        if self.phase is not Phase.MEMBER or self._lost:
            raise CommitFailed(
                f"this consumer is not a member of group {self.settings.group_id!r} now, and its "
                "partitions may belong to others; poll to join again. If more than "
                f"max_poll_interval_ms={self.settings.max_poll_interval_ms} passed between polls, "
                "raise it or poll fewer records"
            )
        return GroupMetadata(
            self.settings.group_id, self.member_id, self.epoch, self.settings.instance_id
        )

    def on_commit_refused(self, code: int, identity: GroupMetadata) -> None:
        """Sends a heartbeat soon, whose response tells the state of the membership."""
        if self.phase is Phase.MEMBER and identity.generation_or_epoch == self.epoch:
            self._heartbeat_due = True

    def request_rejoin(self, reason: str) -> None:
        """Sends a heartbeat soon; only the coordinator decides about rebalances."""
        self._heartbeat_due = True

    # Leaving

    def leave_request(self, *, for_good: bool) -> ConsumerGroupHeartbeatRequest:
        static = self.settings.instance_id is not None and not for_good
        return ConsumerGroupHeartbeatRequest(
            group_id=self.settings.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_STATIC_EPOCH if static else LEAVE_EPOCH,
            instance_id=self.settings.instance_id,
        )

    def on_left(self) -> None:
        """Ends the membership; partitions that are still owned are lost."""
        self._reset()


def _by_topic(
    partitions: Iterable[IdPartition],
) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    found: dict[bytes, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic, partitions=numbers)
        for topic, numbers in found.items()
    ]
