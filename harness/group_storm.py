"""A storm over one group: members join, leave, are killed and paused, all by one seed.

`python -m harness.group_storm [--subject kafka] [--protocol consumer] [--seed N]` runs one.

It comes in waves. After each the group must come to rest with the members that are left, and read
on. All the while a watcher asks the coordinator who owns what and what is committed, and tries to
commit for members that are gone. What was seen to be wrong is handed back; nothing means all is
well.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import kafka_jars
from harness.group_watch import Watch
from harness.nodes import Flavour, Headwater, Kafka, Node, end_nodes_when_terminated
from headwater.blocking import Admin
from headwater.cli.group_describe import find_group, why_not_stable
from headwater.client.admin import Group
from headwater.client.errors import ClientError
from headwater.model import TopicPartition

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

_MEMBERS_MAX = 6
_PAUSED_MAX = 2
# A classic group forms no generation while one of its members is dead or paused and its session
# still runs. With a kill or a pause every second none would ever be formed, by nobody's fault.
_GUSTS = {"join": 4, "leave": 3, "kill": 1, "pause": 1, "wake": 2}
# For what a busy machine may delay: processes that start and end, records that are read.
_PATIENCE_SECONDS = 60.0


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
    command = [sys.executable, "-m", "harness.group_member", client, bootstrap, group, topic, name]
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a storm. All is well if nothing is `wrong`."""

    wrong: list[str]
    watch: Watch
    rests: list[float]  # seconds from the last gust of each wave until the group was at rest
    commits: int  # how often a member has read and committed

    def __str__(self) -> str:
        stable = self.watch.stable_looks / max(self.watch.looks, 1)
        rests = ", ".join(f"{seconds:.1f}" for seconds in self.rests)
        return (
            f"{self.watch.looks} looks, {stable:.0%} of them at a stable group; {self.commits} "
            f"commits, {self.watch.lies} lies, {self.watch.ghosts} by ghosts; at rest after "
            f"{rests} s; wrong: {self.wrong}"
        )


@dataclass(slots=True)
class Storm:
    """`seed` decides who does what and when; a wave of 45 gusts lasts half a minute."""

    bootstrap: str
    topic: str
    partitions: int
    clients: Sequence[str]
    seed: int
    waves: int = 4
    gusts: int = 45

    _members: list[Member] = field(default_factory=list)
    _gone: list[Member] = field(default_factory=list)
    _written: Counter[TopicPartition] = field(default_factory=Counter)
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def group_id(self) -> str:
        return f"{self.topic}-storm"

    def run(self) -> Outcome:
        watch = Watch(self.group_id)
        wrong: list[str] = []
        rests: list[float] = []
        threads = [
            threading.Thread(target=self._watch, args=(watch,)),
            threading.Thread(target=self._produce),
        ]
        with tempfile.TemporaryDirectory() as folder:
            for thread in threads:
                thread.start()
            try:
                self._rage(watch, Path(folder), wrong, rests)
            finally:
                self._ended.set()
                for thread in threads:
                    thread.join()
                for member in (*self._members, *self._gone):
                    member.process.kill()
                    member.process.wait()
            everybody = [*self._members, *self._gone]
            wrong += watch.wrong + _two_in_one_generation(everybody)
            commits = sum("read" in event for member in everybody for event in member.events())
        return Outcome(wrong, watch, rests, commits)

    def _rage(self, watch: Watch, folder: Path, wrong: list[str], rests: list[float]) -> None:
        chance = random.Random(self.seed)
        with Admin(self.bootstrap) as admin:
            for wave in range(self.waves):
                for number in range(self.gusts):
                    self._gust(chance, f"member-{wave}-{number}", folder)
                    time.sleep(chance.uniform(0.3, 1.0))
                for member in self._members:
                    member.is_paused = False
                    member.process.send_signal(signal.SIGCONT)
                over = time.monotonic()
                trouble = self._calm_down() or self._rest(admin)
                rests.append(time.monotonic() - over)
                trouble = trouble or self._read_on(watch)
                if trouble is not None:
                    wrong.append(f"after wave {wave}: {trouble}")

    def _gust(self, chance: random.Random, name: str, folder: Path) -> None:
        members = self._members
        paused = [member for member in members if member.is_paused]
        what = "join"
        if len(members) >= 2:
            (what,) = chance.choices(list(_GUSTS), list(_GUSTS.values()))
        if what == "join" and len(members) < _MEMBERS_MAX:
            client = chance.choice(list(self.clients))
            where = (self.bootstrap, self.group_id, self.topic, name, folder)
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
            self._gone.append(member)
            member.process.send_signal(signal.SIGTERM if what == "leave" else signal.SIGKILL)
            member.process.send_signal(signal.SIGCONT)

    def _calm_down(self) -> str | None:
        """A wave is over when its last members have started, and those that leave have ended."""

        def is_calm() -> bool:
            started = all(member.events() for member in self._members)
            return started and all(each.process.poll() is not None for each in self._gone)

        return None if _until(is_calm, _PATIENCE_SECONDS) else "a member did not start or not end"

    def _rest(self, admin: Admin) -> str | None:
        """Until the group is stable with the members that are left."""
        names = {member.name for member in self._members}
        group: Group | None = None

        def is_at_rest() -> bool:
            nonlocal group
            group = find_group(admin, self.group_id)
            if group is None or group.state != "Stable":
                return False
            owned = {each for member in group.members for each in member.assigned}
            known = {member.client_id for member in group.members}
            return known == names and len(owned) == self.partitions

        if _until(is_at_rest, REST_SECONDS):
            return None
        if group is None:
            return "the group is gone"
        known = sorted(str(member.client_id) for member in group.members)
        return (
            f"not at rest after {REST_SECONDS:g} s: {group.state}, {known} for {sorted(names)}: "
            f"{why_not_stable(group)}"
        )

    def _read_on(self, watch: Watch) -> str | None:
        """Until all that was written by now is read and committed."""
        written = dict(self._written)

        def is_read() -> bool:
            return all(watch.committed.get(each, 0) >= count for each, count in written.items())

        if _until(is_read, _PATIENCE_SECONDS):
            return None
        return f"committed is {watch.committed}, written was {written}"

    def _watch(self, watch: Watch) -> None:
        with Admin(self.bootstrap) as admin:
            while not self._ended.wait(0.05):
                try:
                    watch.look(admin)
                except ClientError as error:
                    watch.wrong.append(f"the coordinator could not be asked: {error}")
                    return

    def _produce(self) -> None:
        from confluent_kafka import Message, Producer

        def on_delivery(error: object, message: Message) -> None:
            if error is None:
                self._written[TopicPartition(self.topic, message.partition() or 0)] += 1

        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 2})
        number = 0
        while not self._ended.wait(0.01):
            where = number % self.partitions
            producer.produce(self.topic, str(number), partition=where, on_delivery=on_delivery)
            producer.poll(0)
            number += 1
        producer.flush(10)


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.group_storm", description=__doc__)
    parser.add_argument("--subject", choices=("headwater", "kafka"), default="headwater")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--waves", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    end_nodes_when_terminated()
    flavour: Flavour = Headwater()
    if options.subject == "kafka":
        flavour = Kafka(kafka_jars.jars(kafka_jars.kafka_version()))
    clients = CLASSIC if options.protocol == "classic" else MODERN
    print(f"{options.subject}, {options.protocol}, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        node = Node(flavour, Path(folder), dict(STORM_SETTINGS)).start()
        with Admin(node.bootstrap) as admin:
            admin.create_topic("work", partitions=options.partitions)
        where = (node.bootstrap, "work", options.partitions)
        outcome = Storm(*where, clients, seed=options.seed, waves=options.waves).run()
        node.raise_if_ended()
        node.stop()
    print(outcome)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
