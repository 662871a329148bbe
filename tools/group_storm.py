"""A storm over one group: members join, leave, are killed and paused, all by one seed.

While it rages a watcher asks the coordinator who owns what and what is committed, and tries to
commit for members that are gone; afterwards the group must come to rest. What was seen to be wrong
is handed back; nothing means all is well.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.blocking import Admin
from headwater.cli.group_doctor import why_not_stable
from headwater.cli.group_lag import committed_offsets
from headwater.cli.group_view import Group, find_group
from headwater.client.admin import or_raise
from headwater.client.connection import Connection
from headwater.client.errors import ClientError
from headwater.model import TopicPartition
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

# What a node must be told so that members are found dead in seconds. A member may die while it
# waits to join and be made leader after that, so a group needs two sessions to come to rest.
SESSION_MS = 3000
STORM_SETTINGS = {
    "group.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
REST_SECONDS = 10.0
CLASSIC = ("librdkafka", "kafka-python")
MODERN = ("librdkafka-consumer",)

_BY_NAME_UNTIL = 9
_MEMBERS_MAX = 6
_PAUSED_MAX = 2


@dataclass(slots=True)
class Member:
    """A process, and the file it writes its story to."""

    name: str
    process: subprocess.Popen[bytes]
    story: Path
    is_paused: bool = False

    def events(self) -> list[dict[str, object]]:
        lines = self.story.read_text().split("\n")[:-1]  # the last one may be cut short
        return [json.loads(line) for line in lines if line.startswith("{")]


def start_member(
    client: str,
    bootstrap: str,
    group: str,
    topic: str,
    name: str,
    folder: Path,
    *,
    session_ms: int = 6000,
) -> Member:
    """`session_ms` is for classic members; 6 s is the least that a node allows by default."""
    story = folder / f"{name}.json"
    command = [sys.executable, "-m", "tools.group_member", client, bootstrap, group, topic, name]
    command.append(str(session_ms))
    with story.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL
        )
    return Member(name, process, story)


def read_by(member: Member) -> list[str]:
    """The values that it has read and committed."""
    found: list[str] = []
    for event in member.events():
        values = event.get("read")
        if isinstance(values, list):
            found += values
    return found


@dataclass(slots=True)
class Watch:
    """Looks at the group again and again; keeps what must never have been seen."""

    bootstrap: str
    group_id: str
    wrong: list[str] = field(default_factory=list)
    looks: int = 0
    lies: int = 0
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    seen: dict[str, int | None] = field(default_factory=dict)  # members with their last epoch

    def look(self, admin: Admin) -> Group | None:
        group = find_group(admin, self.group_id)
        self.looks += 1
        if group is not None and (group.state == "Stable" or group.kind == "consumer"):
            self._one_owner_each(group)
        for partition, offset in committed_offsets(admin, self.group_id).items():
            before = self.committed.get(partition, -1)
            if offset < before:
                self.wrong.append(f"{partition}: committed {before}, then {offset}")
            self.committed[partition] = offset
        if group is not None and group.members and self.committed:
            self._lie(admin, group)
        return group

    def _lie(self, admin: Admin, group: Group) -> None:
        """Commits as somebody who has gone, and as a member in a generation that is not now."""
        here = {member.id: member.epoch for member in group.members}
        gone = [each for each in self.seen.items() if each[0] not in here]
        self.seen |= here
        liars = [(member_id, (epoch or 0) + 1000) for member_id, epoch in here.items()]
        for member_id, generation in (
            *liars[:1],
            *((each, epoch or 1) for each, epoch in gone[-1:]),
        ):
            partition = next(iter(self.committed))
            lie = OffsetCommitRequest(
                group_id=self.group_id,
                member_id=member_id,
                generation_id_or_member_epoch=generation,
                topics=[
                    OffsetCommitRequestTopic(
                        name=partition.topic,
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=partition.partition,
                                committed_offset=0,
                                committed_metadata="a lie",
                            )
                        ],
                    )
                ],
            )
            answer = _ask_coordinator(admin, self.group_id, lie)
            self.lies += 1
            if answer.topics[0].partitions[0].error_code == 0:
                self.wrong.append(f"{member_id} committed in {generation}, which is not its own")

    def _one_owner_each(self, group: Group) -> None:
        owners: dict[TopicPartition, str] = {}
        for member in group.members:
            for partition in member.assigned:
                if partition in owners:
                    who = f"{owners[partition]} and {member.id}"
                    self.wrong.append(f"{partition}: owned by {who} in {group.state}")
                owners[partition] = member.id


@dataclass(slots=True)
class Storm:
    """`seed` decides who does what and when."""

    bootstrap: str
    topic: str
    partitions: int
    clients: Sequence[str]
    seconds: float
    seed: int

    def run(self) -> tuple[list[str], int]:
        """What was wrong, and how often the watcher looked and lied."""
        chance = random.Random(self.seed)
        group_id = f"{self.topic}-storm"
        watch = Watch(self.bootstrap, group_id)
        ended = threading.Event()
        members: list[Member] = []
        gone: list[Member] = []
        threads = [
            threading.Thread(target=self._watch, args=(watch, ended)),
            threading.Thread(target=self._produce, args=(ended,)),
        ]
        with tempfile.TemporaryDirectory() as folder:
            for thread in threads:
                thread.start()
            try:
                deadline = time.monotonic() + self.seconds
                number = 0
                while time.monotonic() < deadline:
                    number += 1
                    self._gust(chance, members, gone, number, group_id, Path(folder))
                    ended.wait(chance.uniform(0.3, 1.0))
                for member in members:
                    member.process.send_signal(signal.SIGCONT)
                wrong = self._rest(watch, members)
            finally:
                ended.set()
                for thread in threads:
                    thread.join()
                for member in (*members, *gone):
                    member.process.kill()
                    member.process.wait()
            wrong += watch.wrong + _two_in_one_generation([*members, *gone])
        return wrong, min(watch.looks, watch.lies)

    def _gust(
        self,
        chance: random.Random,
        members: list[Member],
        gone: list[Member],
        number: int,
        group_id: str,
        folder: Path,
    ) -> None:
        paused = [member for member in members if member.is_paused]
        if len(members) < 2:
            what = "join"
        else:
            what = chance.choice(("join", "leave", "kill", "pause", "wake"))
        if what == "join" and len(members) < _MEMBERS_MAX:
            client = chance.choice(list(self.clients))
            name = f"member-{number}"
            where = (self.bootstrap, group_id, self.topic, name, folder)
            members.append(start_member(client, *where, session_ms=SESSION_MS))
        elif what == "pause" and len(paused) < _PAUSED_MAX:
            member = chance.choice([each for each in members if not each.is_paused])
            member.is_paused = True
            member.process.send_signal(signal.SIGSTOP)
        elif what == "wake" and paused:
            paused[0].is_paused = False
            paused[0].process.send_signal(signal.SIGCONT)
        elif what in ("leave", "kill"):
            member = members.pop(chance.randrange(len(members)))
            gone.append(member)
            member.process.send_signal(signal.SIGTERM if what == "leave" else signal.SIGKILL)
            member.process.send_signal(signal.SIGCONT)

    def _rest(self, watch: Watch, members: Sequence[Member]) -> list[str]:
        """Waits until the group is stable with the members that are left, and reads on."""
        names = {member.name for member in members}
        if not names:
            return []
        started = time.monotonic()
        with Admin(self.bootstrap) as admin:
            while True:
                group = find_group(admin, watch.group_id)
                waited = time.monotonic() - started
                if group is not None and group.state == "Stable":
                    owned = {each for member in group.members for each in member.assigned}
                    known = {member.client_id for member in group.members}
                    if known == names and len(owned) == self.partitions:
                        return []
                if waited > REST_SECONDS:
                    break
                time.sleep(0.05)
        if group is None:
            return ["the group is gone"]
        known = {member.client_id for member in group.members}
        return [
            f"not at rest after {waited:.0f} s: {group.state}, {sorted(known)} for "
            f"{sorted(names)}: {why_not_stable(group)}"
        ]

    def _watch(self, watch: Watch, ended: threading.Event) -> None:
        with Admin(self.bootstrap) as admin:
            while not ended.wait(0.05):
                try:
                    watch.look(admin)
                except ClientError as error:
                    watch.wrong.append(f"the coordinator could not be asked: {error}")
                    return

    def _produce(self, ended: threading.Event) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 2})
        number = 0
        while not ended.wait(0.01):
            producer.produce(self.topic, str(number), partition=number % self.partitions)
            number += 1
        producer.flush(10)


def _ask_coordinator(admin: Admin, group_id: str, request: OffsetCommitRequest) -> Any:
    router = admin.asynchronous.router

    async def ask(node: Connection, keys: Sequence[str], deadline: float) -> dict[str, Any]:
        return {group_id: await router.ask(node, request, deadline, at_most=_BY_NAME_UNTIL)}

    return or_raise(admin.run(lambda: router.by_coordinator([group_id], ask)))[group_id]


def _two_in_one_generation(members: Sequence[Member]) -> list[str]:
    """By what members were told themselves, as far as their clients tell of generations."""
    owners: dict[tuple[object, int], str] = {}
    wrong = []
    for member in members:
        for event in member.events():
            generation, assigned = event.get("generation"), event.get("assigned")
            if generation is None or not isinstance(assigned, list):
                continue
            for partition in assigned:
                owner = owners.setdefault((generation, partition), member.name)
                if owner != member.name:
                    wrong.append(
                        f"partition {partition} in generation {generation}: {owner}, {member.name}"
                    )
    return wrong
