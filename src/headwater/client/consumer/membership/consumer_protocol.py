"""A member of a consumer group (KIP-848), as a machine: one request, the heartbeat, does it all.

The coordinator divides the partitions and tells each member its part; the member moves there step
by step: `poll` gives back what is no longer its own, takes over what is new, and the next heartbeat
says what the member owns now. Heartbeats carry only what has changed since the last that was
answered; after an error everything is said again. An epoch says how far a member has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from headwater.client.consumer.membership.settings import MembershipSettings
from headwater.client.consumer.membership.steps import (
    DONE,
    JOIN,
    WAIT,
    Assign,
    Lose,
    Revoke,
    Step,
    in_order,
)
from headwater.client.errors import ClientError, CommitFailed, error_for
from headwater.client.requests.offset_commit import CommitIdentity
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

UNKNOWN_PROTOCOL = (
    "the broker does not know group_protocol='consumer' (it came with Kafka 4.0, and may be "
    "switched off); use group_protocol='classic'"
)
_COORDINATOR_GONE = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
_NO_MEMBER = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}


class Phase(Enum):
    OUTSIDE = "outside the group"
    JOINING = "the first heartbeat is not answered yet"
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class Told:
    """What a heartbeat says of a member, as far as it can be left out when it is known."""

    subscription: tuple[frozenset[str], str | None]
    owned: frozenset[IdPartition]
    settled: tuple[frozenset[IdPartition], frozenset[IdPartition]] | None


class ConsumerMember:
    """`name_of` finds the name of a topic id, or None while it is not known."""

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
        # What was last taken over, of which target; it is done with if both are unchanged.
        self._settled: tuple[frozenset[IdPartition], frozenset[IdPartition]] | None = None
        # What the coordinator has been told and has heard; None: nothing.
        self._told: Told | None = None
        self._beat_now = False
        self._interval = 0.0
        self._sent_at = 0.0
        self._failures = 0
        self._polled = 0.0

    # What poll asks and does.

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
            return self._target is not None and not self._is_settled(self._target)
        return self.phase is Phase.OUTSIDE and self.rejoin and self.subscribed

    def next_step(self) -> Step:
        if self._lost and self._owned:
            return Lose(in_order(self._owned.values()))
        if self.phase is Phase.JOINING:
            return WAIT
        if self.phase is Phase.OUTSIDE:
            return JOIN if self.rejoin and self.subscribed else DONE
        if self._target is None:
            return WAIT
        if self._is_settled(self._target):
            return DONE
        resolved = self._resolved()
        if gone := self._owned.keys() - resolved:
            return Revoke(in_order(self._owned[each] for each in gone))
        return Assign(in_order(map(self._named, resolved - self._owned.keys())))

    def given_up(self, partitions: Iterable[TopicPartition]) -> None:
        """`lost` or `revoked` was called for these."""
        gone = set(partitions)
        self._owned = {key: each for key, each in self._owned.items() if each not in gone}
        if not self._owned:
            self._lost = False

    def take_over(self) -> None:
        """What is in the target and has a name is ours from here on; the next heartbeat says so."""
        assert self._target is not None
        resolved = self._resolved()
        self._owned = {key: self._named(key) for key in resolved}
        self._settled = (self._target, resolved)
        self._beat_now = True

    def _is_settled(self, target: frozenset[IdPartition]) -> bool:
        """Whether all of the target that has a name was taken over. Asked for every slice of
        records, so the usual case, in which nothing is without a name, costs nothing."""
        if self._settled is None or self._settled[0] is not target:
            return False
        taken = self._settled[1]
        return len(taken) == len(target) or taken == self._resolved()

    def unresolved(self) -> frozenset[bytes]:
        """Topics of the target whose name is not known: metadata must be asked."""
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
        assert name is not None, "only what has a name is assigned"
        return TopicPartition(name, key[1])

    def subscribe(
        self, topics: frozenset[str], *, regex: str | None = None, follows_pattern: bool = False
    ) -> None:
        self.topics, self.regex, self.follows_pattern = topics, regex, follows_pattern
        if self.phase is Phase.OUTSIDE:
            self.rejoin = self.subscribed
        elif self._told is None or self._told.subscription != (topics, regex):
            self._beat_now = True

    def take_failure(self) -> Exception | None:
        """The error that the user has not heard yet. To be fenced is said every time."""
        failure = self.failure
        if not self.fenced:
            self.failure = None
        return failure

    def on_join_started(self) -> None:
        self.phase = Phase.JOINING
        self.rejoin = False
        self.epoch = JOIN_EPOCH
        self._target = self._settled = self._told = None
        self._beat_now = True
        self._failures = 0

    # Heartbeats.

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
        """When the next one is due; `backoff` is how long to wait after failures, if any."""
        if self._failures:
            return self._sent_at + backoff
        return self._sent_at if self._beat_now else self._sent_at + self._interval

    def heartbeat(self, now: float) -> tuple[ConsumerGroupHeartbeatRequest, Told]:
        """The request, and what the coordinator will have been told when it is answered."""
        self._sent_at = now
        self._beat_now = False
        telling = Told(
            subscription=(self.topics, self.regex),
            owned=frozenset(self._owned),
            settled=self._settled,
        )
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.settings.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.settings.instance_id,
        )
        told = self._told
        if told is None:
            request.rack_id = self.settings.rack
            request.rebalance_timeout_ms = self.settings.max_poll_interval_ms
            request.server_assignor = self.settings.remote_assignor
        if told is None or told.subscription != telling.subscription:
            request.subscribed_topic_names = sorted(self.topics)
            # An empty text takes back a regular expression that was sent before.
            was = None if told is None else told.subscription[1]
            request.subscribed_topic_regex = "" if was and not self.regex else self.regex
        if told is None or (told.owned, told.settled) != (telling.owned, telling.settled):
            request.topic_partitions = _by_topic(self._owned)
        return request, telling

    def on_heartbeat(
        self, response: ConsumerGroupHeartbeatResponse, telling: Told, *, sent_epoch: int
    ) -> bool:
        """Whether the coordinator is to be found again before the next one."""
        if self.phase is Phase.OUTSIDE or sent_epoch != self.epoch:
            return False  # we left, or joined afresh, since this was asked
        if response.error_code != ErrorCode.NONE:
            return self._on_refusal(response.error_code, response.error_message)
        self._failures = 0
        self._told = telling
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
        """No answer came: it is not known what the coordinator has heard."""
        self._told = None
        self._sent_at = now
        self._failures += 1

    def _on_refusal(self, code: int, message: str | None) -> bool:
        self._told = None
        if code in _NO_MEMBER:
            self._reset()
        elif code in _COORDINATOR_GONE or code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._failures += 1
            return code in _COORDINATOR_GONE
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # We stay: rights may be given, and other topics are still ours.
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
                message = UNKNOWN_PROTOCOL
            case ErrorCode.FENCED_INSTANCE_ID | ErrorCode.UNRELEASED_INSTANCE_ID:
                what += f", group_instance_id {self.settings.instance_id!r}"
                message = None  # the advice of the code says more
            case ErrorCode.UNSUPPORTED_ASSIGNOR:
                what += f", group_remote_assignor {self.settings.remote_assignor!r}"
            case ErrorCode.INVALID_REGULAR_EXPRESSION:
                what += f", regular expression {self.regex!r}"
        return error_for(code, what, message)

    def _reset(self) -> None:
        """We are no member any more; what we own is not ours. The member id stays for life."""
        self.phase = Phase.OUTSIDE
        self.epoch = JOIN_EPOCH
        self.rejoin = True
        self._target = self._settled = self._told = None
        self._lost = bool(self._owned)

    @property
    def identity(self) -> CommitIdentity:
        if self.fenced and self.failure is not None:
            raise self.failure.with_traceback(None)
        if self.phase is not Phase.MEMBER or self._lost:
            raise CommitFailed(
                f"this consumer is no member of group {self.settings.group_id!r} now: its "
                "partitions may belong to others; poll, which joins again. If it took longer "
                f"than max_poll_interval_ms={self.settings.max_poll_interval_ms} between polls, "
                "raise it or poll fewer records"
            )
        return CommitIdentity(
            self.settings.group_id, self.member_id, self.epoch, self.settings.instance_id
        )

    def on_commit_refused(self, code: int, identity: CommitIdentity) -> None:
        """The next heartbeat tells what has become of us; let it be soon."""
        if self.phase is Phase.MEMBER and identity.generation_or_epoch == self.epoch:
            self._beat_now = True

    def request_rejoin(self, reason: str) -> None:
        """Here the coordinator rebalances by itself: all that can be done is to be heard soon."""
        self._beat_now = True

    # Leaving.

    def leave_request(self, *, for_good: bool) -> ConsumerGroupHeartbeatRequest:
        static = self.settings.instance_id is not None and not for_good
        return ConsumerGroupHeartbeatRequest(
            group_id=self.settings.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_STATIC_EPOCH if static else LEAVE_EPOCH,
            instance_id=self.settings.instance_id,
        )

    def on_left(self) -> None:
        """We have left, or leave now; whatever is still owned is lost."""
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
