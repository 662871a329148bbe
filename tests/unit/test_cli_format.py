"""`headwater format`: what it writes and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.cli.main import main

CLUSTER = "3Db5QLSqSZieL3rJBUUegA"


def test_a_directory_is_formatted_for_the_cluster_that_was_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    arguments = ["format", "--data", str(data), "--cluster-id", CLUSTER, "--output", "json"]
    assert main(arguments) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"cluster": CLUSTER, "node": 1, "directories": [str(data)]}
    properties = (data / "meta.properties").read_text()
    assert f"cluster.id={CLUSTER}" in properties
    assert "node.id=1" in properties


def test_without_an_id_every_cluster_gets_one_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = set()
    for name in ("a", "b"):
        assert main(["format", "--data", str(tmp_path / name), "--output", "json"]) == 0
        found.add(json.loads(capsys.readouterr().out)["cluster"])
    assert len(found) == 2
    assert all(len(cluster) == 22 for cluster in found)


def test_a_directory_is_formatted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["format", "--data", str(tmp_path)]) == 0
    before = (tmp_path / "meta.properties").read_bytes()
    capsys.readouterr()
    assert main(["format", "--data", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert str(tmp_path) in shown.err
    assert "already" in shown.err
    assert (tmp_path / "meta.properties").read_bytes() == before


def test_an_id_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["format", "--data", str(tmp_path / "data"), "--cluster-id", "mine"]) == 2
    assert "'mine'" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_every_directory_of_a_file_is_formatted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=4\nlog.dirs={tmp_path / 'a'},{tmp_path / 'b'}\n")
    assert main(["format", "--config", str(file)]) == 0
    assert "node         4\n" in capsys.readouterr().out
    for name in ("a", "b"):
        assert "node.id=4" in (tmp_path / name / "meta.properties").read_text()


def test_a_place_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert main(["format", "--data", str(tmp_path / "file" / "data")]) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err
