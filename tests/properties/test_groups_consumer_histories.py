"""Random histories of a consumer group: invariants after every step, and progress in the end."""

from __future__ import annotations

from random import Random

import pytest

from headwater.groups.settings import GroupSettings
from tests.reference.consumers import Consumer, Harness, settle

TOPICS = ["a", "b", "ab", "c"]


class History:
    """Members that come, go, hang, crash and change their minds; topics that come and grow."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.harness = Harness(settings=GroupSettings(), a=4, b=3)
        self.consumers: list[Consumer] = []
        self.epochs: dict[str, int] = {}
        self.last = (0, 0)
        self.born = 0

    def step(self) -> None:
        random, harness = self.random, self.harness
        harness.tick(random.choice([0.0, 0.2, 1.1, 5.0]))
        for consumer in self.consumers:
            if consumer.epoch and consumer.id not in harness.group.state.members:
                # Its session has ended, and it will be told so; nobody may wait for that.
                consumer.epoch, consumer.owned = 0, {}
        act = random.choice(
            [self.join, *[self.beat] * 12, self.leave, self.crash, self.change, self.topics]
        )
        act()
        self.check()

    def join(self) -> None:
        if len(self.consumers) >= 6:
            return
        self.born += 1
        consumer = Consumer(self.harness, f"m{self.born}")
        if self.random.random() < 0.3:
            consumer.instance_id = f"i{self.random.randrange(3)}"
        consumer.slow = self.random.random() < 0.1
        self.subscribe(consumer)
        self.consumers.append(consumer)
        if consumer.beat().error_code == 111:
            self.consumers.remove(consumer)

    def subscribe(self, consumer: Consumer) -> None:
        random = self.random
        consumer.assignor = random.choice([None, "uniform", "range"])
        consumer.topics = random.sample(TOPICS, random.randrange(4))
        consumer.regex = random.choice([None, "a.*", "[bc]+", ""])

    def beat(self) -> None:
        if not self.consumers:
            return
        consumer = self.random.choice(self.consumers)
        if consumer.epoch and self.random.random() < 0.5:
            consumer.took(self.harness.ask(consumer.id, consumer.epoch))
        else:
            consumer.beat()

    def leave(self) -> None:
        if self.consumers:
            consumer = self.random.choice(self.consumers)
            static = consumer.instance_id is not None and self.random.random() < 0.7
            consumer.leave(-2 if static else -1)
            self.consumers.remove(consumer)

    def crash(self) -> None:
        if self.consumers:
            consumer = self.random.choice(self.consumers)
            if self.random.random() < 0.5:
                self.consumers.remove(consumer)  # its session ends by itself
            else:
                consumer.epoch, consumer.owned = 0, {}  # restarts with the same id
                if consumer.instance_id is None:
                    consumer.beat()

    def change(self) -> None:
        members = [consumer for consumer in self.consumers if consumer.epoch > 0]
        if members:
            consumer = self.random.choice(members)
            self.subscribe(consumer)
            consumer.beat(
                subscribed_topic_names=consumer.topics,
                subscribed_topic_regex=consumer.regex,
                rebalance_timeout_ms=consumer.rebalance_timeout_ms,
            )

    def topics(self) -> None:
        world = self.harness.world
        name = self.random.choice(TOPICS)
        if name in world.counts and self.random.random() < 0.3:
            del world.counts[name]
            world.generation[name] = world.generation.get(name, 0) + 1
        else:
            world.counts[name] = min(world.counts.get(name, 0) + 2, 9)
        self.harness.topics_changed()

    def check(self) -> None:
        state = self.harness.group.state
        epochs = (state.epoch, state.target_epoch)
        assert epochs >= self.last, "the epochs of a group never go back"
        assert state.target_epoch <= state.epoch
        self.last = epochs
        owners: dict[tuple[bytes, int], str] = {}
        for consumer in self.consumers:
            for topic, numbers in consumer.owned.items():
                for number in numbers:
                    other = owners.setdefault((topic, number), consumer.id)
                    assert other == consumer.id, f"{number} of {topic!r} has two owners"
        held: set[tuple[bytes, int]] = set()
        for member in state.members.values():
            assert member.epoch <= state.target_epoch
            for part in (member.assigned, member.revoking):
                for topic, epochs_of in part.items():
                    for number in epochs_of:
                        assert (topic, number) not in held
                        held.add((topic, number))
                        assert state.is_held(topic, number)
        assert held == {(t, n) for t, numbers in state.holders.items() for n in numbers}

    def come_to_rest(self) -> None:
        """Lets all members follow until those that crashed have timed out."""
        for consumer in self.consumers:
            consumer.slow = False
        for _ in range(20):
            settle(self.harness, self.consumers, rounds=3)
        state = self.harness.group.state
        assert set(state.members) == {consumer.id for consumer in self.consumers}
        assert state.name == ("Stable" if self.consumers else "Empty")
        assert state.metadata_hash == self.harness.group.topics.hash(state.topics)
        world = self.harness.world
        wanted: set[tuple[bytes, int]] = set()
        for consumer in self.consumers:
            member = state.members[consumer.id]
            assert consumer.owned == state.target.get(consumer.id, {})
            for name in state.subscribed(member):
                topic, count = world.id(name), world.partitions(name)
                if topic is not None and count is not None:
                    wanted |= {(topic, number) for number in range(count)}
        owned = {(t, n) for c in self.consumers for t, numbers in c.owned.items() for n in numbers}
        assert owned == wanted


@pytest.mark.parametrize("seed", range(60))
def test_a_random_history_keeps_every_promise(seed: int) -> None:
    history = History(seed)
    for _ in range(80):
        history.step()
    history.come_to_rest()
