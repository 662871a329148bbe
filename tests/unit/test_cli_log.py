"""`headwater log`: what it shows of a partition's files, and what it finds wrong."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headwater import _core
from headwater.cli.main import main
from tests.support.processes import HEADWATER


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition with two batches, written by hand."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    first = _core.encode(
        [(b"k", b"one", (("h", b"\xff"), ("n", None)), 1000), (None, b"two", (), 2000)]
    )
    second = _core.encode([(None, None, (), 3000)], base_offset=2, codec=4)
    (folder / "00000000000000000000.log").write_bytes(first + second)
    (folder / "00000000000000000000.index").write_bytes(b"")
    (folder / "00000000000000000000.timeindex").write_bytes(b"")
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return folder


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["log", "dump", "--output", "json", *arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_batches_and_epochs_are_shown(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = [row for row in rows(capsys, str(partition)) if "base_offset" in row]
    assert [(row["base_offset"], row["count"], row["codec"]) for row in batches] == [
        (0, 2, "none"),
        (2, 1, "zstd"),
    ]
    epochs = [row for row in rows(capsys, str(partition.parent)) if "epoch" in row]
    assert [(row["epoch"], row["start_offset"]) for row in epochs] == [(0, 0)]


def test_records_are_shown_when_asked_for(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(partition / "00000000000000000000.log")
    records = [row for row in rows(capsys, file, "--records") if "value" in row]
    assert [(row["offset"], row["key"], row["value"]) for row in records] == [
        (0, "k", "one"),
        (1, None, "two"),
        (2, None, None),
    ]
    assert records[0]["headers"] == [["h", {"base64": "/w=="}], ["n", None]]


def test_text_names_each_file_once(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", "--records", str(partition)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.count(str(partition / "00000000000000000000.log")) == 1
    assert any("base_offset=0" in line and "codec=none" in line for line in lines)
    assert any("key='k' value='one'" in line for line in lines)


def test_an_undamaged_log_verifies(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "verify", str(partition)]) == 0
    assert capsys.readouterr().out == "no damage found\n"


def test_damage_is_found_and_the_exit_code_is_one(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = partition / "00000000000000000000.log"
    data = bytearray(file.read_bytes())
    data[data.index(b"two")] ^= 1
    file.write_bytes(data)
    assert main(["log", "verify", str(partition)]) == 1
    assert str(file) in capsys.readouterr().out
    assert main(["log", "verify", str(partition), "--output", "json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)
    assert finding["path"] == str(file)


@pytest.mark.parametrize("action", ["dump", "verify"])
def test_a_missing_path_is_named(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing")
    assert main(["log", action, missing]) == 1
    assert missing in capsys.readouterr().err


def test_a_closed_pipe_ends_the_dump_quietly(partition: Path) -> None:
    command = f"{HEADWATER} log dump --records {' '.join([str(partition)] * 500)} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("action", ["dump", "verify"])
def test_a_path_without_a_log_is_not_reported_as_undamaged(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("nothing of a log")
    for path in (tmp_path, tmp_path / "notes.txt"):
        assert main(["log", action, str(path)]) == 1
        assert f"{path}: no log found here" in capsys.readouterr().err
    (tmp_path / "meta.properties").write_text("version=1")  # a node without topics
    assert main(["log", action, str(tmp_path)]) == 0
