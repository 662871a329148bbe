"""Random histories of a shard with classic groups: clients that join, sync, commit, lie and die.

After every step a shard that has only read the log must equal the living one; no partition has two
owners in one generation, as far as members were told; nobody who is fenced or late moves an offset;
and when everybody falls silent, every request has been answered, and once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from headwater.coordination import Decision, Token
from headwater.errors import ErrorCode
from headwater.groups.settings import GroupSettings
from headwater.groups.shard import GroupShard
from headwater.protocol.messages.join_group import JoinGroupResponse
from headwater.protocol.messages.sync_group import SyncGroupResponse
from tests.support.group_shards import ShardDesk, protocols

GROUPS = ("one", "two")
PARTITIONS = 6
STEPS = 300
SEEDS = range(40)

SETTINGS = GroupSettings(initial_rebalance_delay_ms=1000, group_size_max=3)


class CheckedDesk(ShardDesk):
    """Feeds every record to a second shard as well, as the log would give it back."""

    def __init__(self, seed: int) -> None:
        super().__init__(SETTINGS, seed=seed)
        self.twin = GroupShard(SETTINGS, Random(1))

    def carry_out(self, decision: Decision, *, producer_id: int = -1) -> None:
        start = len(self.log)
        super().carry_out(decision, producer_id=producer_id)
        for offset, record in enumerate(self.records[start:], start):
            self.twin.apply(record, offset=offset)
        if decision.records:
            assert self.twin.durable_state() == self.shard.durable_state()


@dataclass(slots=True)
class Client:
    """A member's view of the group, which may be out of date."""

    group: str
    instance: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    protocol: str | None = None
    members: list[str] = field(default_factory=list)
    joining: Token | None = None
    syncing: Token | None = None
    must_join: bool = True
    must_sync: bool = False

    @property
    def name(self) -> str:
        """The identity that partitions belong to: a static member is the same under any id."""
        return self.instance or self.member_id


class History:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.desk = CheckedDesk(seed)
        self.clients: list[Client] = []
        # What the judge knows: offsets by group, the newest generation anybody was told of, and
        # who was told to own what, by group, life of the group, and generation.
        self.offsets: dict[str, dict[tuple[str, int], int]] = {group: {} for group in GROUPS}
        self.newest: dict[str, int] = dict.fromkeys(GROUPS, -1)
        self.lives: dict[str, int] = dict.fromkeys(GROUPS, 0)
        self.owners: dict[tuple[str, int, int], dict[int, str]] = {}

    def run(self, steps: int) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (50, self.behave),
            (4, self.come),
            (4, self.join),
            (3, self.sync),
            (3, self.heartbeat),
            (20, self.commit),
            (2, self.leave),
            (1, self.leave_by_instance),
            (1, self.die),
            (2, self.delete_offset),
            (1, self.delete_group),
            (1, self.restart),
            (10, self.wait_a_little),
            (1, self.wait_long),
        ]
        chosen = self.random.choices(
            [action for _, action in actions], [weight for weight, _ in actions], k=steps
        )
        for action in chosen:
            action()
            self.desk.settle()
            self.hear()
            self.judge()

    # What the clients do

    def pick(self) -> Client | None:
        return self.random.choice(self.clients) if self.clients else None

    def behave(self) -> None:
        """Lets every client do what a well-behaved one would do next."""
        for client in self.random.sample(self.clients, len(self.clients)):
            if client.joining is not None or client.syncing is not None:
                continue
            if client.must_join:
                self.join(client)
            elif client.must_sync:
                self.sync(client)
            else:
                self.heartbeat(client)
            self.hear()

    def come(self) -> None:
        if len(self.clients) < 6:
            instance = self.random.choice((None, None, "first", "second"))
            group, version = self.random.choice(GROUPS), self.random.choice((3, 8, 9))
            version = max(version, 5) if instance else version
            self.clients.append(Client(group, instance, version))

    def join(self, client: Client | None = None) -> None:
        client = client or self.pick()
        if client is None:
            return
        speaks = self.random.choice((("range", "sticky"), ("range",), ("sticky", "range")))
        client.joining = self.desk.join(
            client.member_id,
            group=client.group,
            instance=client.instance,
            speaks=protocols(*speaks),
            session_ms=self.random.choice((6000, 30_000)),
            rebalance_ms=self.random.choice((0, 5000, 60_000)),
            version=client.version,
        )
        client.syncing = None

    def sync(self, client: Client | None = None) -> None:
        client = client or self.pick()
        if client is None or client.generation < 0:
            return
        # Somebody who does not lead says that all is theirs.
        takes = client.members or [client.member_id, "nobody"]
        shares = {member: bytearray() for member in takes}
        for partition in range(PARTITIONS):
            shares[self.random.choice(takes)].append(partition)
        client.syncing = self.desk.sync(
            client.member_id,
            client.generation - (self.random.random() < 0.1),
            {member: bytes(share) for member, share in shares.items()},
            group=client.group,
            instance=client.instance,
            protocol=client.protocol,
        )

    def heartbeat(self, client: Client | None = None) -> None:
        client = client or self.pick()
        if client is not None:
            code = self.desk.heartbeat(
                client.member_id, client.generation, group=client.group, instance=client.instance
            )
            self.learn(client, code)

    def commit(self) -> None:
        client = self.pick()
        if client is None:
            return
        lie = self.random.random()
        generation = client.generation - 1 if lie < 0.15 else client.generation
        member_id = "nobody" if 0.15 <= lie < 0.25 else client.member_id
        where = ("orders", self.random.randrange(PARTITIONS))
        offset = self.random.randrange(1000)
        members = self.desk.describe(client.group).members
        by_id = {member.member_id: member.group_instance_id for member in members}
        [code] = self.desk.commit(
            {where: offset}, member_id, generation, group=client.group, instance=client.instance
        )
        if code is ErrorCode.NONE:
            self.offsets[client.group][where] = offset
            if generation >= 0:
                assert generation >= self.newest[client.group], "a commit of an old generation"
                assert member_id in by_id, "a commit of somebody who is no member"
                assert client.instance in (None, by_id[member_id]), "a commit of a fenced member"
            else:
                assert not members, "a commit past the members"

    def leave(self) -> None:
        client = self.pick()
        if client is not None:
            self.desk.leave((client.member_id, client.instance), group=client.group)

    def leave_by_instance(self) -> None:
        instance = self.random.choice(("first", "second", "nobody"))
        self.desk.leave(("", instance), ("nobody", None), group=self.random.choice(GROUPS))

    def die(self) -> None:
        """Drops a client: its responses are not read, and its parked requests stay parked."""
        client = self.pick()
        if client is not None:
            self.clients.remove(client)

    def delete_offset(self) -> None:
        group, where = self.random.choice(GROUPS), ("orders", self.random.randrange(PARTITIONS))
        if self.desk.delete_offsets(*where, group=group) == [ErrorCode.NONE]:
            self.offsets[group].pop(where, None)

    def delete_group(self) -> None:
        group = self.random.choice(GROUPS)
        if self.desk.delete_groups(group) == {group: ErrorCode.NONE}:
            self.offsets[group].clear()

    def restart(self) -> None:
        """A generation without a SyncGroup is not in the log, so that its number is used again."""
        assert self.desk.replayed().durable_state() == self.desk.shard.durable_state()
        self.desk.restart()
        for client in self.clients:
            if client.joining is not None or client.syncing is not None:
                client.joining = client.syncing = None
                client.must_join = True
        self.newest = dict.fromkeys(GROUPS, -1)

    def wait_a_little(self) -> None:
        self.desk.advance(self.random.random() * 3)

    def wait_long(self) -> None:
        self.desk.advance(self.random.random() * 60)

    # What they hear

    def hear(self) -> None:
        for client in list(self.clients):
            if client.joining in self.desk.answers:
                self.hear_join(client, self.desk.joined(client.joining or 0))
            if client.syncing in self.desk.answers:
                self.hear_sync(client, self.desk.synced(client.syncing or 0))

    def hear_join(self, client: Client, answer: JoinGroupResponse) -> None:
        client.joining = None
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif code is ErrorCode.NONE:
            client.member_id, client.generation = answer.member_id, answer.generation_id
            client.protocol = answer.protocol_name
            client.members = [member.member_id for member in answer.members]
            assert answer.generation_id >= self.newest[client.group]
            self.newest[client.group] = answer.generation_id
            client.must_join, client.must_sync = False, True
        self.learn(client, code)

    def hear_sync(self, client: Client, answer: SyncGroupResponse) -> None:
        client.syncing = None
        code = ErrorCode(answer.error_code)
        client.must_sync = False
        if code is ErrorCode.NONE:
            life = (client.group, self.lives[client.group], client.generation)
            owners = self.owners.setdefault(life, {})
            for partition in answer.assignment:
                owner = owners.setdefault(partition, client.name)
                assert owner == client.name, f"{partition} is {owner}'s and {client.name}'s"
        self.learn(client, code)

    def learn(self, client: Client, code: ErrorCode) -> None:
        """Most clients do as they are told; some go on with what they believed."""
        if code is ErrorCode.NONE or self.random.random() < 0.1:
            return
        client.must_join, client.must_sync = True, False
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id, client.generation = "", -1

    # What must hold

    def judge(self) -> None:
        for group in GROUPS:
            assert self.desk.committed(group) == self.offsets[group]
            if self.desk.state(group) == "Dead":
                self.lives[group] += 1
                self.newest[group] = -1

    def fall_silent(self) -> None:
        self.desk.advance(3600.0)
        waiting = {token for token in self.desk.asked if self.desk.waits(token)}
        assert not waiting, f"never answered: {waiting}"
        for group in GROUPS:
            assert self.desk.state(group) in ("Empty", "Dead")
        assert self.desk.replayed().durable_state() == self.desk.shard.durable_state()


@pytest.mark.parametrize("seed", SEEDS)
def test_classic_groups_keep_their_promises(seed: int) -> None:
    history = History(seed)
    history.run(STEPS)
    history.fall_silent()


def test_histories_go_everywhere() -> None:
    """The histories must reach the interesting cases."""
    codes: set[int] = set()
    states: set[str] = set()
    for seed in SEEDS[:10]:
        history = History(seed)
        history.run(STEPS)
        codes |= {getattr(answer, "error_code", 0) for answer in history.desk.answers.values()}
        states |= {history.desk.state(group) for group in GROUPS}
    assert codes >= {
        ErrorCode.NONE,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    }
    assert len(states) > 2
