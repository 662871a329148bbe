"""The members of a classic group: their leader, the protocols they share, and their records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.errors import ErrorCode
from headwater.groups.clients import ClientInfo
from headwater.groups.timers import Timer
from headwater.protocol.messages.join_group import JoinGroupRequestProtocol
from headwater.protocol.records.group_offsets import MemberMetadata

# The name of a protocol and the member's metadata for the leader; the preferred one comes first.
Protocols = tuple[tuple[str, bytes], ...]


def protocols_of(asked: list[JoinGroupRequestProtocol]) -> Protocols:
    """Returns the protocols of a request. A repeated name counts once, as in Kafka."""
    named: dict[str, bytes] = {}
    for protocol in asked:
        named.setdefault(protocol.name, protocol.metadata)
    return tuple(named.items())


@dataclass(slots=True)
class Member:
    """One member. Its `session` expires unless a heartbeat extends it."""

    id: str
    instance_id: str | None
    client: ClientInfo
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    session: Timer
    assignment: bytes = b""
    # Not part of a generation yet, and so unable to send heartbeats.
    is_new: bool = False

    def metadata(self, protocol: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"{self.id} does not know the protocol {protocol} of its group")


class Members:
    """The members by id, in the order in which they joined."""

    __slots__ = ("_members", "_speakers", "instances", "leader")

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._speakers: dict[str, int] = {}  # how many members know a protocol
        self.instances: dict[str, str] = {}  # the member id that holds an instance id
        self.leader: str | None = None

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Checks a member's ids. An instance id has one holder; other members are fenced."""
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member) -> None:
        assert member.id not in self._members, f"{member.id} is in the group already"
        if member.instance_id is not None:
            assert member.instance_id not in self.instances, f"{member.instance_id} is held"
            self.instances[member.instance_id] = member.id
        self._members[member.id] = member
        self._count(member.protocols, 1)
        if self.leader is None:
            self.leader = member.id

    def remove(self, member_id: str) -> Member | None:
        """Removes a member. If it was the leader, the oldest remaining member is next."""
        member = self._members.pop(member_id, None)
        if member is None:
            return None
        self._count(member.protocols, -1)
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)
        return member

    def rename(self, old: Member, new: Member) -> None:
        """Replaces a static member by the one that came back under a new id."""
        assert new.instance_id is not None
        self._count(old.protocols, -1)
        self._count(new.protocols, 1)
        self._members = {
            (new.id if member is old else member.id): (new if member is old else member)
            for member in self
        }
        self.instances[new.instance_id] = new.id
        if self.leader == old.id:
            self.leader = new.id

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def _count(self, protocols: Protocols, change: int) -> None:
        for name, _ in protocols:
            left = self._speakers.get(name, 0) + change
            if left:
                self._speakers[name] = left
            else:
                del self._speakers[name]

    def shares_protocol(self, protocols: Protocols) -> bool:
        """Returns whether all members share one of these protocols; without members any will do."""
        total = len(self._members)
        return any(self._speakers.get(name, 0) == total for name, _ in protocols)

    def vote(self) -> str:
        """Returns the protocol that most members prefer, among those that all of them share."""
        total = len(self._members)
        votes: dict[str, int] = {}
        for member in self:
            for name, _ in member.protocols:
                if self._speakers[name] == total:
                    votes[name] = votes.get(name, 0) + 1
                    break
        assert votes, "members that share no protocol were let into one group"
        return max(votes, key=votes.__getitem__)

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)


# Records from before Kafka 0.10.1 have one timeout for both.
_NO_TIMEOUT = -1


def write_member(member: Member, protocol: str | None) -> MemberMetadata:
    """Returns the record of a member, with its metadata for the protocol of the generation."""
    assert protocol is not None, "members are written with the protocol they agreed on"
    return MemberMetadata(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client.client_id,
        client_host=member.client.host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=member.assignment,
    )


def read_member(member: Member, written: MemberMetadata, protocol: str | None) -> None:
    """Fills a new member from its record."""
    timeout_ms = written.rebalance_timeout
    member.session_timeout_ms = written.session_timeout
    member.rebalance_timeout_ms = (
        written.session_timeout if timeout_ms == _NO_TIMEOUT else timeout_ms
    )
    member.protocols = ((protocol or "", written.subscription),)
    member.assignment = written.assignment
