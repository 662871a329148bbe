"""`headwater log`: what it shows of a partition's files, and what it finds wrong."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headwater import _core
from headwater.cli.main import main
from headwater.metadata.batches import encode_batch
from headwater.protocol.records.metadata_security import UserScramCredentialRecord
from headwater.protocol.records.metadata_topics import ConfigRecord, TopicRecord
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


SECRET = "planted-password"


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    """A metadata log with a password, an unknown setting, a user, and what is no secret."""
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    key = "listener.name.ssl.ssl.keystore.password"
    records = [
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1000"),
        ConfigRecord(resource_type=4, resource_name="1", name="background.threads", value="7"),
        ConfigRecord(resource_type=4, resource_name="1", name=key, value=SECRET),
        ConfigRecord(resource_type=4, resource_name="1", name=key, value=None),
        ConfigRecord(resource_type=4, resource_name="1", name="plugin.token", value=SECRET),
        UserScramCredentialRecord(
            name="alice",
            mechanism=2,
            salt=SECRET.encode(),
            stored_key=SECRET.encode(),
            server_key=SECRET.encode(),
            iterations=4096,
        ),
        TopicRecord(name="orders", topic_id=bytes(range(16))),
    ]
    unknown = _core.encode([(None, b"\x01\x7f\x00" + SECRET.encode(), (), 0)], base_offset=7)
    batch = encode_batch(records, metadata_version=25, now_ms=0)
    (folder / "00000000000000000000.log").write_bytes(batch + unknown)
    return folder


def values(found: list[dict[str, Any]]) -> list[Any]:
    return [row["value"] for row in found if "value" in row]


def test_secrets_of_the_metadata_are_hidden(
    metadata: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = values(rows(capsys, str(metadata), "--records"))
    assert [value["value"] for value in shown[:5]] == [
        "1000",
        "7",
        "[hidden]",
        None,
        "[hidden]",
    ]
    assert shown[2]["name"] == "listener.name.ssl.ssl.keystore.password"
    assert shown[5] == {
        "type": "UserScramCredentialRecord",
        "name": "alice",
        "mechanism": 2,
        "salt": "[hidden]",
        "stored_key": "[hidden]",
        "server_key": "[hidden]",
        "iterations": 4096,
    }
    assert shown[6] == {
        "type": "TopicRecord",
        "name": "orders",
        "topic_id": "AAECAwQFBgcICQoLDA0ODw",
    }
    assert shown[7].startswith(f"[hidden: {3 + len(SECRET)} bytes, unknown metadata record 127")
    assert main(["log", "dump", "--records", str(metadata)]) == 0
    text = capsys.readouterr().out
    assert SECRET not in text
    assert "value={type: ConfigRecord, resource_type: 2, resource_name: orders, " in text


def test_secrets_of_the_metadata_are_shown_when_asked_for(
    metadata: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = values(rows(capsys, str(metadata), "--records", "--show-secrets"))
    assert [value["value"] for value in shown[:5]] == ["1000", "7", SECRET, None, SECRET]
    assert shown[5]["stored_key"] == SECRET
    assert shown[7] == "\x01\x7f\x00" + SECRET


def test_secrets_are_hidden_in_a_file_of_the_metadata_that_was_copied(
    metadata: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copy = tmp_path / "00000000000000000000.log"
    (metadata / copy.name).rename(copy)
    shown = values(rows(capsys, str(copy), "--records"))
    assert [value["value"] for value in (shown[2], shown[4])] == ["[hidden]", "[hidden]"]
    assert shown[5]["salt"] == "[hidden]"
