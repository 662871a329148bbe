"""`python -m conformance.transaction_diff`: random requests to two transaction coordinators.

    python -m conformance.transaction_diff                     Kafka's node beside ours
    python -m conformance.transaction_diff --subject kafka     proves the judge
    python -m conformance.transaction_diff --seeds 500 --steps 80
    python -m conformance.transaction_diff --seeds 10 --epoch 32764    epochs that run out

Each seed is a history of one transactional id: requests of all versions, by clients that are right,
late, fenced or wrong. Both nodes are asked the same, and after each request both describe the id
when its markers are written. Producer ids are compared by the order in which they first appear. A
history ends at its first difference; those that `docs/internals/transactions.md` names are counted
and do not fail the run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from harness import kafka_jars
from harness.nodes import Flavour, Headwater, Kafka, Node, end_nodes_when_terminated
from harness.wire import Wire, until
from headwater.errors import ErrorCode
from headwater.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headwater.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headwater.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headwater.protocol.messages.end_txn import EndTxnRequest
from headwater.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest

_TOPIC, _GROUP = "orders", "g"
_PARTITIONS = 4
_TIMEOUTS_MS = (60_000, 60_000, 50_000, 0, 900_001)
_INIT_KNOWS_EPOCH_SINCE = 3
_MANY_TRANSACTIONS_SINCE = 4
_PIPELINED = 200
_UNKNOWN_ID = 10**9  # a producer id that no node has given out

Answer = tuple[object, ...]


class Who(NamedTuple):
    """A producer id, by the order of its first appearance, and an epoch."""

    number: int
    epoch: int


NOBODY = Who(-1, -1)


class Ask(NamedTuple):
    """A request, with what its kind needs."""

    kind: str
    version: int
    who: Who
    partitions: tuple[int, ...] = ()
    commits: bool = False
    timeout_ms: int = 60_000


@dataclass(slots=True)
class Side:
    """One of the two nodes."""

    wire: Wire
    name: str  # the transactional id
    producer_ids: list[int] = field(default_factory=list)

    def _number(self, producer_id: int) -> int:
        if producer_id >= 0 and producer_id not in self.producer_ids:
            self.producer_ids.append(producer_id)
        return self.producer_ids.index(producer_id) if producer_id >= 0 else producer_id

    def _producer_id(self, number: int) -> int:
        known = self.producer_ids
        if 0 <= number < len(known):
            return known[number]
        return number if number < 0 else _UNKNOWN_ID + number

    def ask(self, ask: Ask) -> Answer:
        producer_id, epoch = self._producer_id(ask.who.number), ask.who.epoch
        match ask.kind:
            case "init":
                return self._init(ask, producer_id)
            case "end":
                request = EndTxnRequest(
                    transactional_id=self.name,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    committed=ask.commits,
                )
                said = self.wire.ask(request, ask.version)
                number = self._number(said.producer_id)
                return (ErrorCode(said.error_code).name, number, said.producer_epoch)
            case "offsets":
                offsets = AddOffsetsToTxnRequest(
                    transactional_id=self.name,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    group_id=_GROUP,
                )
                return (ErrorCode(self.wire.ask(offsets, ask.version).error_code).name,)
            case _:
                return self._add(ask, producer_id)

    def _init(self, ask: Ask, producer_id: int) -> Answer:
        knows = ask.version >= _INIT_KNOWS_EPOCH_SINCE
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=ask.timeout_ms,
            producer_id=producer_id if knows else -1,
            producer_epoch=ask.who.epoch if knows else -1,
        )
        while True:
            said = self.wire.ask(request, ask.version)
            if said.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
            time.sleep(0.02)  # it has no producer ids at hand
        number = self._number(said.producer_id)
        return (ErrorCode(said.error_code).name, number, said.producer_epoch)

    def _add(self, ask: Ask, producer_id: int) -> Answer:
        topics = [AddPartitionsToTxnTopic(name=_TOPIC, partitions=list(ask.partitions))]
        if ask.version >= _MANY_TRANSACTIONS_SINCE:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=self.name,
                producer_id=producer_id,
                producer_epoch=ask.who.epoch,
                verify_only=ask.kind == "verify",
                topics=topics,
            )
            request = AddPartitionsToTxnRequest(transactions=[transaction])
            found = self.wire.ask(request, ask.version).results_by_transaction[0].topic_results
        else:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=ask.who.epoch,
                v3_and_below_topics=topics,
            )
            found = self.wire.ask(request, ask.version).results_by_topic_v3_and_below
        return tuple(
            sorted(
                (each.partition_index, ErrorCode(each.partition_error_code).name)
                for topic in found
                for each in topic.results_by_partition
            )
        )

    def described(self) -> Answer:
        """The id, once nothing is under way."""
        while True:
            request = DescribeTransactionsRequest(transactional_ids=[self.name])
            (found,) = self.wire.ask(request).transaction_states
            if not found.transaction_state.startswith("Prepare"):
                break
            time.sleep(0.002)
        if found.error_code:
            return (ErrorCode(found.error_code).name, NOBODY)
        topics = {topic.topic: sorted(topic.partitions) for topic in found.topics}
        return (
            found.transaction_state,
            Who(self._number(found.producer_id), found.producer_epoch),
            found.transaction_timeout_ms,
            topics.get(_TOPIC),
            len(topics),
        )

    def raise_epoch(self, epoch: int) -> None:
        """Initializes the id until it has this epoch."""
        first = self.ask(Ask("init", 4, NOBODY))
        remaining = epoch - int(str(first[2]))
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        while remaining > 0:
            count = min(remaining, _PIPELINED)
            for _ in range(count):
                self.wire.send(request, 4)
            for _ in range(count):
                assert self.wire.receive().error_code == ErrorCode.NONE
            remaining -= count


class Client:
    """Makes up requests; knows some identities of the past."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.known = [NOBODY]

    def _who(self) -> Who:
        random = self._random
        draw = random.random()
        if draw < 0.75:
            return self.known[-1]
        number, epoch = random.choice(self.known)
        if draw < 0.9:
            return Who(number, epoch)
        if random.random() < 0.3:
            return Who(number + 1, epoch)
        return Who(number, max(-1, min(2**15 - 1, epoch + random.choice((-1, 1, 2)))))

    def next(self) -> Ask:
        random = self._random
        kinds = ("init", "add", "verify", "offsets", "end")
        (kind,) = random.choices(kinds, (1.5, 4, 1.5, 1, 4))
        match kind:
            case "init":
                who = self._who() if random.random() < 0.6 else NOBODY
                timeout_ms = random.choice(_TIMEOUTS_MS)
                return Ask(kind, random.randint(0, 5), who, timeout_ms=timeout_ms)
            case "offsets":
                return Ask(kind, random.randint(0, 4), self._who())
            case "end":
                version = random.choice((0, 1, 2, 3, 4, 5, 5, 5, 5, 5))
                return Ask(kind, version, self._who(), commits=random.random() < 0.6)
            case _:
                version = random.choice((0, 1, 2, 3, 3, 3, 4, 5, 5, 5))
                version = random.choice((4, 5)) if kind == "verify" else version
                partitions = random.sample(range(_PARTITIONS), random.randint(1, 3))
                return Ask(kind, version, self._who(), tuple(partitions))

    def hear(self, answer: Answer) -> None:
        if len(answer) == 3 and answer[0] == "NONE" and answer[1] != -1:
            self.known.append(Who(int(str(answer[1])), int(str(answer[2]))))


def known_difference(ask: Ask, state: Answer, reference: Answer, subject: Answer) -> str | None:
    """Returns which of the documented differences this is."""
    title, current = state[0], state[1]
    assert isinstance(current, Who)
    if reference[0] == "UNKNOWN_SERVER_ERROR":
        if subject[0] != "NONE":
            return "an error that Kafka does not expect"
        is_behind = ask.who == Who(current.number, current.epoch - 1)
        if ask.kind == "init" and is_behind and subject[1:] == tuple(current):
            return "a client that missed the end gets the last epoch, where Kafka stumbles"
        return None
    if subject[0] not in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"):
        return None
    if ask.kind == "init" and title == "Ongoing" and ask.who != current:
        return "InitProducerId of a stale epoch aborts nothing"
    is_complete = str(title).startswith("Complete")
    if is_complete and ask.who == Who(current.number, current.epoch - 1):
        return "one epoch behind a transaction that version 1 has ended"
    return None


def run_history(
    seed: int, wires: tuple[Wire, Wire], steps: int, epoch: int | None, found: Counter[str]
) -> str | None:
    """Returns the first difference that is not a known one."""
    name = f"history-{seed}-{time.time_ns()}"
    reference, subject = Side(wires[0], name), Side(wires[1], name)
    client = Client(Random(seed))
    if epoch is not None:
        reference.raise_epoch(epoch)
        subject.raise_epoch(epoch)
        client.known.append(Who(0, epoch))
    state: Answer = reference.described()
    for _ in range(steps):
        ask = client.next()
        expected, got = reference.ask(ask), subject.ask(ask)
        found["requests"] += 1
        if expected != got:
            known = known_difference(ask, state, expected, got)
            if known is None:
                return f"{ask} at {state}: {expected}, and not {got}"
            found[known] += 1
            return None
        client.hear(expected)
        state, after = reference.described(), subject.described()
        if state != after:
            return f"after {ask}: {state}, and not {after}"
    return None


def _has_coordinator(wire: Wire, request: FindCoordinatorRequest) -> bool:
    return not wire.ask(request).coordinators[0].error_code


def connect(node: Node) -> Wire:
    wire = Wire(node.bootstrap)
    topic = CreatableTopic(name=_TOPIC, num_partitions=_PARTITIONS, replication_factor=1)
    wire.ask(CreateTopicsRequest(topics=[topic]))
    for key_type, key in ((1, "history"), (0, _GROUP)):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        until(partial(_has_coordinator, wire, request), f"a coordinator of {key}")
    return wire


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--subject", choices=("headwater", "kafka"), default="headwater")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--epoch", type=int, help="the epoch that histories start with")
    options = parser.parse_args()
    end_nodes_when_terminated()
    kafka = Kafka(kafka_jars.jars(kafka_jars.kafka_version()))
    flavours: tuple[Flavour, Flavour]
    flavours = (kafka, kafka if options.subject == "kafka" else Headwater())
    found: Counter[str] = Counter()
    differences = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        wires = []
        for number, flavour in enumerate(flavours):
            node = Node(flavour, folder / f"{number}").start()
            stack.callback(node.kill)
            wires.append(stack.enter_context(connect(node)))
        for seed in range(options.first, options.first + options.seeds):
            pair = (wires[0], wires[1])
            difference = run_history(seed, pair, options.steps, options.epoch, found)
            if difference is not None:
                differences += 1
                print(f"seed {seed}: {difference}")
    for what, count in sorted(found.items()):
        print(f"{count:8} {what}")
    print(f"transaction_diff: {options.seeds} histories, {differences} different")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
