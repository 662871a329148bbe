"""Only one run of a pipeline at a time: leases in the cluster, locks in checkpoints, and reset."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.blocking import Admin
from headwater.cli.connection import Cluster
from headwater.cli.errors import CommandError
from headwater.cli.main import main
from headwater.cli.pipeline_registry import Registry, lock_checkpoint, machine, read_statuses
from headwater.spark.pipeline_status import RUNNING, STOPPED, TOPIC, TOPIC_CONFIGS, Status
from headwater.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with EmbeddedBroker() as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1, configs=TOPIC_CONFIGS)
        yield Cluster(broker.bootstrap, {})


@pytest.fixture
def registry(cluster: Cluster) -> Iterator[Registry]:
    with Registry(cluster) as registry:
        yield registry


def new_run(name: str, **fields: object) -> Status:
    here = {"host": "here", "machine": machine(), "pid": os.getpid(), "file": "totals.sql"}
    return Status(name=name, run=uuid.uuid4().hex, **(here | fields))  # type: ignore[arg-type]


def status_of(cluster: Cluster, name: str) -> Status:
    options = Namespace(bootstrap=cluster.bootstrap, profile=None, client_config=None)
    return read_statuses(options)[name]


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_second_run_is_refused_with_host_and_process_until_the_first_has_stopped(
    cluster: Cluster, registry: Registry
) -> None:
    first, second = new_run("totals"), new_run("totals", host="there", pid=7)
    registry.claim(first)
    with Registry(cluster) as other, pytest.raises(CommandError) as refused:
        other.claim(second)
    assert "pipeline totals is already running on here" in str(refused.value)
    assert f"`kill {os.getpid()}` on here" in str(refused.value)
    assert status_of(cluster, "totals").run == first.run

    registry.write(Status(name="totals", run=first.run, state=STOPPED))
    registry.claim(second)
    assert status_of(cluster, "totals").run == second.run


def test_a_run_that_was_killed_on_this_machine_blocks_nobody(
    cluster: Cluster, registry: Registry
) -> None:
    killed, following = new_run("killed", pid=dead_process()), new_run("killed")
    registry.claim(killed)
    with Registry(cluster) as other:
        other.claim(following)
    found = status_of(cluster, "killed")
    assert (found.run, found.state) == (following.run, RUNNING)


def test_a_run_on_another_machine_is_not_judged_by_its_process_id(
    cluster: Cluster, registry: Registry
) -> None:
    registry.claim(new_run("remote", machine="another", host="there", pid=dead_process()))
    with pytest.raises(CommandError, match="already running on there"):
        registry.claim(new_run("remote"))


def test_a_checkpoint_is_locked_while_its_process_lives(tmp_path: Path) -> None:
    status = new_run("totals", checkpoint=str(tmp_path / "totals"))
    held = lock_checkpoint(status)
    assert held is not None
    with pytest.raises(CommandError) as refused:
        lock_checkpoint(status)
    assert f"already running on here (process {os.getpid()})" in str(refused.value)
    os.close(held)
    again = lock_checkpoint(status)
    assert again is not None
    os.close(again)


def checkpoint(folder: Path, *, batches: int) -> Path:
    for name in ("commits", "offsets"):
        (folder / name).mkdir(parents=True)
        for number in range(batches):
            (folder / name / str(number)).write_text("v1")
    return folder


def test_reset_shows_what_it_would_delete_and_deletes_it_with_yes(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint(tmp_path / "resettable", batches=3)
    command = ["pipeline", "reset", "resettable", "--bootstrap", cluster.bootstrap]
    command += ["--checkpoints", str(tmp_path)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert f"{folder}, 3 finished batches" in shown
    assert "nothing has changed yet: --yes deletes it" in shown
    assert folder.is_dir()
    assert main([*command, "--yes"]) == 0
    assert f"deleted {folder}" in capsys.readouterr().out
    assert not folder.exists()


def test_reset_finds_the_checkpoint_where_the_pipeline_last_ran(
    cluster: Cluster, registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint(tmp_path / "known", batches=1)
    registry.claim(new_run("known", checkpoint=str(folder)))
    command = ["pipeline", "reset", "known", "--yes", "--bootstrap", cluster.bootstrap]
    assert main(command) == 1
    assert "pipeline known is already running" in capsys.readouterr().err
    running = status_of(cluster, "known")
    registry.write(replace(running, state=STOPPED))
    registry.close()
    assert main(command) == 0
    assert not folder.exists()


def test_reset_deletes_nothing_but_checkpoints(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.png").write_text("")
    command = ["pipeline", "reset", "photos", "--yes", "--bootstrap", cluster.bootstrap]
    assert main([*command, "--checkpoints", str(tmp_path)]) == 1
    assert "is not a checkpoint of Spark" in capsys.readouterr().err
    assert (tmp_path / "photos" / "me.png").exists()
    assert main([*command, "--checkpoints", str(tmp_path / "nowhere")]) == 1
    assert "has no checkpoint in" in capsys.readouterr().err
