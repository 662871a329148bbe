"""Moves between log directories, cut short at every place where that could matter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headwater.broker.log_moves import LogMoves
from headwater.broker.partition import ALL_IN_SYNC, Partition
from headwater.config import node_config
from headwater.io import Host
from headwater.model import TopicPartition
from headwater.observability import Log as Lines
from headwater.storage import LogDirs, Origin
from tests.support.logs import NOW, batch, lead

TP = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
CONFIG = node_config({"log.dirs": "/one,/two"}).topic_defaults.config()
RECORDS = 20


class Stage:
    """A broker's two directories with one partition, opened afresh as often as a test likes."""

    def __init__(self) -> None:
        self.host = Host.in_memory()
        self.lines: list[str] = []
        self.open()

    def open(self) -> None:
        host = self.host
        self.dirs = LogDirs.open(
            host.disk,
            ["/one", "/two"],
            node_id=1,
            clock=host.clock,
            new_id=host.random_id,
            cluster_id="c",
        )
        self.dirs.load(lambda _: CONFIG)
        self.adopted = self.dirs.adopt_moved()
        log = self.dirs.get(TP) or self.dirs.create(TP, TOPIC_ID, CONFIG, "/one")
        self.partition = Partition(TP, TOPIC_ID, log, host.workers, log.end)
        lead(self.partition, epoch=1, isr=(1,), replicas=(1,))
        self.moves = LogMoves(self.dirs, host.clock, host.workers, Lines(host.clock, self.say))

    def say(self, line: str) -> None:
        self.lines.append(line)

    def reopen(self) -> None:
        self.dirs.close(clean=True)
        self.open()

    def append(self, count: int = RECORDS) -> None:
        for _ in range(count):
            self.partition.append(
                batch(b"v" * 1000), acks=ALL_IN_SYNC, now_ms=NOW, origin=Origin.CLIENT
            )

    @property
    def place(self) -> str:
        return self.dirs.directory_of(self.partition.log).path

    async def moved(self) -> None:
        while self.dirs.future(TP) is not None:  # noqa: ASYNC110 - nobody tells of its end
            await asyncio.sleep(0)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 10))


def test_a_log_moves_and_its_old_files_go() -> None:
    async def story() -> None:
        stage = Stage()
        stage.append()
        stage.moves.start(stage.partition, stage.dirs.find("/two"))
        stage.append()
        await stage.moved()
        assert stage.place == "/two"
        assert stage.partition.log.end == 2 * RECORDS
        assert stage.partition.log.latest_epoch == 1
        (job,) = stage.dirs.deletions
        assert job.path.startswith("/one/t-0.")
        job.run()
        assert [name for name in stage.host.disk.list("/one") if name.startswith("t-0")] == []

    run(story())


def test_a_move_that_a_stop_cut_short_goes_on() -> None:
    async def story() -> None:
        stage = Stage()
        stage.append()
        stage.moves.start(stage.partition, stage.dirs.find("/two"))
        stage.moves.stop()
        stage.append()
        stage.reopen()
        assert stage.place == "/one"
        future = stage.dirs.future(TP)
        assert future is not None
        assert future.end == 0
        stage.moves.resume(_only(stage.partition))
        await stage.moved()
        assert stage.place == "/two"
        assert stage.partition.log.end == 2 * RECORDS

    run(story())


def test_a_crash_between_the_last_two_renames_loses_nothing() -> None:
    """Kill the rename in `finish_move` that gives the copy its name, and start again."""

    async def story() -> None:
        stage = Stage()
        stage.append()
        stage.moves.start(stage.partition, stage.dirs.find("/two"))
        await stage.moved()
        stage.dirs.close(clean=True)
        stage.host.disk.rename("/two/t-0", f"/two/t-0.{bytes(16).hex()}-future")
        stage.open()
        assert stage.adopted == [TP]
        assert stage.place == "/two"
        assert stage.partition.log.end == RECORDS

    run(story())


def test_what_was_durable_is_durable_after_the_move() -> None:
    async def story() -> None:
        stage = Stage()
        stage.append()
        await stage.partition.flush()
        stage.moves.start(stage.partition, stage.dirs.find("/two"))
        await stage.moved()
        assert stage.partition.log.recovery_point >= RECORDS

    run(story())


def test_going_back_ends_a_move() -> None:
    async def story() -> None:
        stage = Stage()
        stage.append()
        stage.moves.start(stage.partition, stage.dirs.find("/two"))
        stage.moves.start(stage.partition, stage.dirs.find("/one"))
        assert stage.dirs.future(TP) is None
        for _ in range(10):
            await asyncio.sleep(0)
        assert stage.place == "/one"
        assert [job.path[:5] for job in stage.dirs.deletions] == ["/two/"]

    run(story())


def test_a_log_that_is_deleted_while_it_moves_takes_its_copy_along() -> None:
    async def story() -> None:
        stage = Stage()
        stage.append()
        stage.moves.start(stage.partition, stage.dirs.find("/two"))
        stage.dirs.delete(TP)
        await stage.moved()
        for _ in range(10):
            await asyncio.sleep(0)
        assert stage.dirs.get(TP) is None
        assert {job.path[:5] for job in stage.dirs.deletions} == {"/one/", "/two/"}
        assert stage.lines == []

    run(story())


def test_a_copy_that_is_deleted_while_its_next_piece_is_read_takes_no_directory_offline() -> None:
    async def story() -> None:
        stage = Stage()
        stage.append()
        workers = stage.host.workers
        is_read = asyncio.Event()

        class LateWorkers:
            async def run(self, work: Callable[[], Any]) -> Any:
                done = await workers.run(work)
                await is_read.wait()
                return done

            def close(self) -> None: ...

        lines = Lines(stage.host.clock, stage.say)
        moves = LogMoves(stage.dirs, stage.host.clock, LateWorkers(), lines)
        moves.start(stage.partition, stage.dirs.find("/two"))
        await asyncio.sleep(0)  # it reads
        stage.dirs.delete(TP)
        for job in stage.dirs.take_deletions():
            job.run()
        (task,) = moves._tasks.values()
        is_read.set()
        await task
        assert stage.dirs.offline() == []
        assert stage.lines == []

    run(story())


def _only(partition: Partition) -> Any:
    class One:
        def all(self) -> list[Partition]:
            return [partition]

    return One()
