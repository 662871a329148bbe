"""kill -9 of nodes and of clients, in the middle of their transactions: money is neither made nor
lost, and each number is copied once.

Tellers move money between accounts, one transaction for each transfer. Copiers, members of a group,
write on what they read. The coordinators of transactions and groups, leaders and the workers
themselves are killed in turn.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import pytest

from harness.transaction_workers import ACCOUNTS, COPIES, FATAL, GROUP, NUMBERS, PARTITIONS
from headwater import TopicPartition
from headwater.blocking import Admin, Consumer, Producer
from headwater.testing import HeadwaterCluster, MakeHeadwaterCluster

Isolation = Literal["read_committed", "read_uncommitted"]
PATIENCE = 180.0  # for one step, on a machine that is busy with other things
_ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(900)


class Worker:
    """A process that is started again under the same name when it was killed."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.name = arguments[2]
        self._arguments = arguments
        self._output = folder / f"{self.name}.out"
        self._errors = folder / f"{self.name}.err"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "harness.transaction_workers", *self._arguments]
        with self._output.open("ab") as output, self._errors.open("ab") as errors:
            self._process = subprocess.Popen(command, stdout=output, stderr=errors, cwd=_ROOT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def check(self) -> None:
        """Starts it again if its producer could not go on; nothing else but a kill ends it."""
        code = self._process.poll()
        if code == FATAL:
            self.start()
            return
        assert code is None, f"{self.name} ended with {code}: {self._errors.read_text()[-2000:]}"

    def reported(self) -> list[str]:
        """Returns the transactions that it reported as committed; a kill may have cut off the last
        line."""
        return [line for line in self._output.read_text().split("\n") if line]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    with ExitStack() as stack:

        def start_one(*arguments: str) -> Worker:
            worker = Worker(tmp_path, *arguments)
            stack.callback(worker.kill)
            return worker

        yield start_one


@pytest.mark.parametrize(
    ("teller", "protocol"), [("teller", "consumer"), ("librdkafka-teller", "classic")]
)
def test_transactions_are_whole_though_nodes_and_clients_are_killed(
    make_headwater_cluster: MakeHeadwaterCluster,
    start: Callable[..., Worker],
    tmp_path: Path,
    teller: str,
    protocol: str,
) -> None:
    topics = dict.fromkeys((ACCOUNTS, NUMBERS, COPIES), PARTITIONS)
    settings = {
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.heartbeat.interval.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
    }
    cluster = make_headwater_cluster(settings, data=tmp_path / "cluster", topics=topics)
    tellers = [start(teller, cluster.bootstrap, f"teller-{n}") for n in range(2)]
    copiers = [start("copier", cluster.bootstrap, f"copier-{n}", protocol) for n in range(2)]
    workers = [*tellers, *copiers]

    with Producer(cluster.bootstrap, linger_ms=5) as producer, Admin(cluster.bootstrap) as admin:
        sent = 0

        def more(count: int = 5) -> None:
            """Sends numbers until both kinds of workers have committed more."""
            wanted = [(some, _reports(some) + count) for some in (tellers, copiers)]

            def holds() -> bool:
                nonlocal sent
                for _ in range(10):
                    producer.submit(NUMBERS, str(sent), partition=sent % PARTITIONS)
                    sent += 1
                return all(_reports(some) >= least for some, least in wanted)

            _wait(holds, workers)
            producer.flush()

        victims: list[Callable[[], int]] = [
            lambda: _node(cluster, admin.describe_transaction("teller-0").coordinator),
            lambda: cluster.leader(COPIES) or 1,
            lambda: _node(cluster, admin.describe_group(GROUP).coordinator),
        ]
        for number, victim in enumerate(victims):
            more()
            node = victim()
            cluster.kill(node)
            for killed in (tellers[number % 2], copiers[number % 2]):
                killed.kill()
                killed.start()
            more()
            cluster.start(node)
            for topic in topics:
                for partition in range(PARTITIONS):
                    cluster.wait_isr(topic, partition, timeout=PATIENCE)
        more()

        def all_copied() -> bool:
            return len(set(_committed(cluster, COPIES))) == sent

        _wait(all_copied, workers)
        for worker in workers:
            worker.kill()
        # What they had open then would hold up the readers until it times out.
        admin.fence_producers([worker.name for worker in workers])
        _wait(lambda: not admin.list_transactions(states=["Ongoing", "PrepareAbort"]), [])

        entries = [entry.split() for entry in _committed(cluster, ACCOUNTS, to_the_end=True)]
        copies = _committed(cluster, COPIES, to_the_end=True)
    halves = Counter(name for name, _ in entries)
    assert set(halves.values()) == {2}, "a transfer was made by half, or twice"
    assert sum(int(amount) for _, amount in entries) == 0
    confirmed = {name for worker in tellers for name in worker.reported() if len(name) == 16}
    assert confirmed <= set(halves), "a transfer that was confirmed is lost"
    assert sorted(map(int, copies)) == list(range(sent))


def _reports(workers: list[Worker]) -> int:
    return sum(len(worker.reported()) for worker in workers)


def _node(cluster: HeadwaterCluster, address: str) -> int:
    return next(node for node, each in cluster.addresses.items() if each == address)


def _committed(cluster: HeadwaterCluster, topic: str, *, to_the_end: bool = False) -> list[str]:
    """Reads what is committed: up to the first open transaction, or all there is."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    isolation: Isolation = "read_uncommitted" if to_the_end else "read_committed"
    found: list[str] = []
    with (
        Consumer(cluster.bootstrap, isolation_level="read_committed") as reader,
        Consumer(cluster.bootstrap, isolation_level=isolation) as other,
    ):
        reader.assign(partitions)
        reader.seek_to_beginning(*partitions)
        ends = other.end_offsets(*partitions)
        deadline = time.monotonic() + PATIENCE
        while any(reader.position(tp) < ends[tp] for tp in partitions):
            assert time.monotonic() < deadline, f"a transaction hangs in {topic}: {ends}"
            found += [bytes(record.value or b"").decode() for record in reader.poll(timeout_ms=200)]
    return found


def _wait(holds: Callable[[], bool], workers: list[Worker]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        for worker in workers:
            worker.check()
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.2)
