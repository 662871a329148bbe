"""A start that does not work: it says why and leaves nothing behind, neither tasks nor locks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from headwater.broker.lifecycle import Lifecycle
from headwater.broker.log_moves import LogMoves
from headwater.broker.node import Node
from headwater.config import node_config
from headwater.errors import ApiError
from headwater.io import Host
from headwater.observability import Log
from headwater.storage.log_dirs import DirectoryRefused

Start = Callable[..., None]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a node, which must fail, and looks around after it."""

    def run(error: type[Exception], address: str = "127.0.0.1:0") -> None:
        asyncio.run(fails(error, address))

    async def fails(error: type[Exception], address: str) -> None:
        host = Host.system()
        settings = {"log.dirs": str(tmp_path / "data"), "listeners": f"PLAINTEXT://{address}"}
        node = Node(node_config(settings), host, Log(host.clock, lambda line: None))
        with pytest.raises(error):
            await node.start()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        with pytest.raises(RuntimeError, match="shutdown"):
            await host.workers.run(lambda: None)

    return run


def starts(data: Path) -> None:
    """It works once what was in the way has gone: nobody holds the directory."""

    async def run() -> None:
        host = Host.system()
        settings = {"log.dirs": str(data), "listeners": "PLAINTEXT://127.0.0.1:0"}
        node = Node(node_config(settings), host, Log(host.clock, lambda line: None))
        await node.start()
        await node.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_a_port_that_is_taken_leaves_no_task_behind(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        start(OSError, f"127.0.0.1:{taken.getsockname()[1]}")
    starts(tmp_path / "data")


def test_a_registration_that_fails_leaves_no_task_behind(start: Start, tmp_path: Path) -> None:
    """Even while the metadata log is being synced."""
    register = Lifecycle.register

    async def fails(self: Lifecycle, *args: Any, **kwargs: Any) -> None:
        begun = asyncio.ensure_future(register(self, *args, **kwargs))
        await asyncio.sleep(0)
        begun.cancel()
        raise ValueError("no")

    with patch.object(Lifecycle, "register", fails):
        start(ValueError)
    starts(tmp_path / "data")


def test_a_metadata_log_that_fails_ends_a_start_that_waits(start: Start, tmp_path: Path) -> None:
    async def waits(self: Lifecycle, *args: Any, **kwargs: Any) -> None:
        self._metadata.stop_for(OSError("the disk is gone"))
        await asyncio.wait_for(asyncio.Event().wait(), 60)

    with patch.object(Lifecycle, "register", waits):
        start(ApiError)
    starts(tmp_path / "data")


def test_a_failure_while_the_quorum_starts_leaves_no_task_behind(
    start: Start, tmp_path: Path
) -> None:
    with patch.object(LogMoves, "resume", side_effect=ValueError("no")):
        start(ValueError)
    starts(tmp_path / "data")


def test_a_directory_of_another_node_is_given_back(start: Start, tmp_path: Path) -> None:
    starts(tmp_path / "data")
    properties = tmp_path / "data" / "meta.properties"
    own = properties.read_text()
    properties.write_text("cluster.id=garbage\n")
    start(DirectoryRefused)
    properties.write_text(own)
    starts(tmp_path / "data")


def test_a_node_in_memory_does_not_say_that_it_formats() -> None:
    lines: list[str] = []

    async def run() -> None:
        host = Host.in_memory()
        settings = {"log.dirs": "/memory", "listeners": "PLAINTEXT://127.0.0.1:0"}
        node = Node(node_config(settings), host, Log(host.clock, lines.append))
        await node.start()
        await node.stop()

    asyncio.run(run())
    assert not [line for line in lines if "formatted" in line]
