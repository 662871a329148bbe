"""Compaction that fails: the log stays as it is, and what went wrong is said once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

from headwater.broker.cleaning import Cleaning
from headwater.broker.partition import Partition
from headwater.config import node_config
from headwater.errors import ApiError, ErrorCode
from headwater.io import Host
from headwater.observability import Log as Lines
from headwater.storage import LogDirs, StorageFailed
from headwater.storage.cleaner import CleaningJob, Uncleanable
from tests.support.logs import NOW, TOPIC_ID, TP, append, contents, records, settings


class Scene:
    """A broker with one compacted log, in which the same key is written again and again."""

    def __init__(self) -> None:
        self.host = Host.in_memory()
        self.dirs = LogDirs.open(
            self.host.disk,
            ["/data"],
            node_id=1,
            clock=self.host.clock,
            new_id=self.host.random_id,
            cluster_id="c",
        )
        self.log = self.dirs.create(
            TP, TOPIC_ID, settings(cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        )
        for number in range(4):
            append(self.log, records([(b"key", b"%d" % number, [], NOW)]))
            self.log.roll(NOW)
        self.before = contents(self.log)
        self.partition = Partition(TP, TOPIC_ID, self.log, self.host.workers, self.log.end)
        self.lines: list[str] = []
        self.deleted: list[Callable[[], None]] = []
        partitions: Any = self
        self.cleaning = Cleaning(
            lambda: node_config({"log.dirs": "/data"}),
            partitions,
            self.dirs,
            self.host.disk,
            self.host.clock,
            self.host.workers,
            lambda delete, _: self.deleted.append(delete),
            Lines(self.host.clock, self.lines.append),
        )

    def all(self) -> list[Partition]:
        return [self.partition]

    async def is_chosen(self) -> bool:
        return await self.cleaning._dirtiest() is not None


def story(told: Callable[[Scene], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def scene() -> None:
            played = Scene()
            try:
                await told(played)
            finally:
                played.host.workers.close()

        asyncio.run(scene())

    run.__name__ = told.__name__
    return run


@story
async def test_a_log_is_compacted(scene: Scene) -> None:
    assert await scene.is_chosen()
    assert await scene.cleaning.clean(scene.partition)
    assert contents(scene.log) == [(3, b"3")]
    assert scene.deleted


@story
async def test_a_full_disk_is_said_once_and_tried_again(scene: Scene) -> None:
    full = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "log directory /data is full")
    with patch.object(CleaningJob, "clean", side_effect=full):
        for _ in range(3):
            assert not await scene.cleaning.clean(scene.partition)
    assert len(scene.lines) == 1
    assert "was not compacted: log directory /data is full" in scene.lines[0]
    assert contents(scene.log) == scene.before
    assert await scene.is_chosen()
    assert await scene.cleaning.clean(scene.partition)
    assert contents(scene.log) == [(3, b"3")]


@story
async def test_a_log_that_cannot_be_compacted_is_left_alone(scene: Scene) -> None:
    with patch.object(CleaningJob, "clean", side_effect=Uncleanable("half a batch")):
        assert not await scene.cleaning.clean(scene.partition)
    assert "cannot be compacted: half a batch" in scene.lines[0]
    assert scene.cleaning.uncleanable() == (scene.log,)
    assert not await scene.is_chosen()
    assert contents(scene.log) == scene.before


@story
async def test_an_error_of_ours_ends_compaction_of_the_log_and_nothing_else(scene: Scene) -> None:
    with patch.object(CleaningJob, "clean", side_effect=AssertionError("never")):
        assert not await scene.cleaning.clean(scene.partition)
    assert "cannot be compacted" in scene.lines[0]
    assert not await scene.is_chosen()
    assert contents(scene.log) == scene.before
    append(scene.log, records([(b"key", b"more", [], NOW)]))


@story
async def test_a_swap_whose_names_are_not_durable_is_taken_back(scene: Scene) -> None:
    with patch.object(CleaningJob, "sync_names", side_effect=StorageFailed("/data", "error")):
        assert not await scene.cleaning.clean(scene.partition)
    assert contents(scene.log) == scene.before
    names = scene.host.disk.list(scene.log.path)
    assert not [name for name in names if name.endswith((".swap", ".cleaned"))]
    assert scene.deleted == []


@story
async def test_a_log_that_was_deleted_meanwhile_is_not_swapped(scene: Scene) -> None:
    clean = CleaningJob.clean

    def and_delete(job: CleaningJob, group: Any) -> Any:
        made = clean(job, group)
        scene.dirs.delete(TP)
        return made

    with patch.object(CleaningJob, "clean", and_delete):
        assert not await scene.cleaning.clean(scene.partition)
    assert scene.lines == []
    assert scene.dirs.offline() == []
