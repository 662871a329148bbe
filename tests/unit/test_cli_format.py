"""`headwater format`: what it writes and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.broker.formatting import METADATA_LOG, read_bootstrap
from headwater.cli.main import main
from headwater.io import Host
from headwater.metadata.features import level_of_release, release_of_level
from headwater.metadata.snapshot import Snapshot, decode_snapshot
from headwater.model import id_from_text, id_text
from headwater.protocol.records.metadata_security import UserScramCredentialRecord
from headwater.security.sasl.scram import salted_password, scram_keys

CLUSTER = "3Db5QLSqSZieL3rJBUUegA"
FIRST, SECOND = "JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A"
BOTH = f"1@host1:9093:{FIRST},2@[::1]:9093:{SECOND}"
CONTROLLER = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
}
DYNAMIC = CONTROLLER | {"controller.quorum.bootstrap.servers": "localhost:9093"}
STATIC = CONTROLLER | {"controller.quorum.voters": "1@localhost:9093,2@b:9093"}
BROKER = {
    "node.id": "4",
    "process.roles": "broker",
    "listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}


@pytest.fixture(autouse=True)
def _streams(capsys: pytest.CaptureFixture[str]) -> None:
    """Commands that run in this process write to streams of their own."""


def run_format(data: Path, settings: dict[str, str], *options: str) -> int:
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return main(["format", "--data", str(data), *given, *options])


def voters_of(data: Path) -> Snapshot | None:
    file = data / METADATA_LOG / "00000000000000000000-0000000000.checkpoint"
    return decode_snapshot(file.read_bytes()) if file.exists() else None


def levels_of(data: Path) -> dict[str, int]:
    return {
        record.name: record.feature_level  # type: ignore[attr-defined]  # all are feature levels
        for record in read_bootstrap(Host.system().disk, str(data))
    }


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


# The voters


def test_the_first_controller_votes_alone(tmp_path: Path) -> None:
    assert run_format(tmp_path, DYNAMIC, "--standalone") == 0
    snapshot = voters_of(tmp_path)
    assert snapshot is not None
    assert snapshot.kraft_version == 1
    assert snapshot.voters is not None
    (voter,) = snapshot.voters.voters
    assert voter.voter_id == 1
    properties = (tmp_path / "meta.properties").read_text()
    assert f"directory.id={id_text(voter.voter_directory_id)}" in properties
    assert [(at.name, at.host, at.port) for at in voter.endpoints] == [
        ("CONTROLLER", "localhost", 9093)
    ]


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_a_voter_on_every_interface_is_known_by_the_name_of_its_host(
    tmp_path: Path, host: str
) -> None:
    listeners = f"PLAINTEXT://localhost:9092,CONTROLLER://{host}:9093"
    assert run_format(tmp_path, DYNAMIC | {"listeners": listeners}, "--standalone") == 0
    snapshot = voters_of(tmp_path)
    assert snapshot is not None
    assert snapshot.voters is not None
    (voter,) = snapshot.voters.voters
    name = Host.system().network.host_name()
    assert [(at.host, at.port) for at in voter.endpoints] == [(name, 9093)]


def test_several_controllers_are_formatted_with_one_list(tmp_path: Path) -> None:
    for node, directory in (("1", FIRST), ("2", SECOND)):
        data = tmp_path / node
        options = ("--cluster-id", CLUSTER, "--initial-controllers", BOTH)
        assert run_format(data, DYNAMIC | {"node.id": node}, *options) == 0
        assert f"directory.id={directory}" in (data / "meta.properties").read_text()
        snapshot = voters_of(data)
        assert snapshot is not None
        assert snapshot.voters is not None
        assert [
            (voter.voter_id, voter.voter_directory_id, voter.endpoints[0].host)
            for voter in snapshot.voters.voters
        ] == [(1, id_from_text(FIRST), "host1"), (2, id_from_text(SECOND), "::1")]


def test_a_node_outside_the_list_gets_an_id_of_its_own(tmp_path: Path) -> None:
    options = ("--cluster-id", CLUSTER, "--initial-controllers", BOTH)
    assert run_format(tmp_path, BROKER, *options) == 0
    properties = (tmp_path / "meta.properties").read_text()
    assert FIRST not in properties
    assert SECOND not in properties
    assert voters_of(tmp_path) is not None


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (DYNAMIC, ["--no-initial-controllers"]),
        (STATIC, []),
        (STATIC, ["--no-initial-controllers"]),
        (BROKER, []),
        (BROKER, ["--no-initial-controllers"]),
    ],
)
def test_voters_that_others_name_are_not_written_down(
    tmp_path: Path, settings: dict[str, str], options: list[str]
) -> None:
    assert run_format(tmp_path, settings, "--cluster-id", CLUSTER, *options) == 0
    assert voters_of(tmp_path) is None


@pytest.mark.parametrize(
    ("settings", "options", "words"),
    [
        (DYNAMIC, [], "--standalone for the first controller"),
        (STATIC, ["--standalone"], "controller.quorum.voters not to be set"),
        (STATIC, ["--initial-controllers", BOTH], "controller.quorum.voters not to be set"),
        (BROKER, ["--standalone"], "process.roles to have controller"),
        (CONTROLLER, ["--no-initial-controllers"], "controller.quorum.bootstrap.servers"),
        (DYNAMIC, ["--initial-controllers", ""], "id@host:port:directory-id"),
        (DYNAMIC, ["--initial-controllers", "1@a:9093"], "id@host:port:directory-id"),
        (DYNAMIC, ["--initial-controllers", f"x@a:9093:{FIRST}"], "id@host:port:directory-id"),
        (DYNAMIC, ["--initial-controllers", f"1@a:70000:{FIRST}"], "id@host:port:directory-id"),
        (DYNAMIC, ["--initial-controllers", "1@a:9093:short"], "directory id is not valid"),
        (DYNAMIC, ["-I", f"1@a:9093:{FIRST},1@b:9093:{SECOND}"], "node 1 is listed twice"),
        (DYNAMIC, ["-I", f"1@a:9093:{FIRST},2@b:9093:{FIRST}"], f"{FIRST} is listed twice"),
        (DYNAMIC, ["--standalone", "--feature", "kraft.version=0"], "need level 1"),
        (STATIC, ["--feature", "kraft.version=1"], "need level 0"),
        (DYNAMIC, ["-s", "--release-version", "3.2"], "3.3-IV3 to 4.3-IV0"),
        (DYNAMIC, ["-s", "-r", "4.0", "-f", "metadata.version=30"], "only one of"),
        (DYNAMIC, ["-s", "--feature", "metadata.version=31"], "from 7 to 30"),
        (DYNAMIC, ["-s", "--feature", "nosuch.version=1"], "expected one of metadata.version"),
        (DYNAMIC, ["-s", "--feature", "group.version=7"], "from 0 to 1"),
        (DYNAMIC, ["-s", "--feature", "group.version"], "name=level"),
        (DYNAMIC, ["-s", "-r", "3.9", "-f", "eligible.leader.replicas.version=1"], "at least 23"),
    ],
)
def test_what_kafka_storage_refuses_is_refused_in_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    settings: dict[str, str],
    options: list[str],
    words: str,
) -> None:
    data = tmp_path / "data"
    assert run_format(data, settings, "--cluster-id", CLUSTER, *options) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not data.exists()


@pytest.mark.parametrize("options", [["-I", BOTH], ["-N"]])
def test_nodes_of_a_cluster_are_told_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    assert run_format(tmp_path / "data", DYNAMIC, *options) == 2
    assert "expected --cluster-id" in capsys.readouterr().err


# Features


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        (["--release-version", "3.9"], {"metadata.version": 21}),
        (
            ["--feature", "metadata.version=25"],
            {"metadata.version": 25, "group.version": 1, "transaction.version": 2},
        ),
        (
            ["-r", "4.0", "-f", "group.version=0"],
            {"metadata.version": 25, "transaction.version": 2},
        ),
    ],
)
def test_a_cluster_begins_with_the_levels_it_was_formatted_with(
    tmp_path: Path, options: list[str], levels: dict[str, int]
) -> None:
    assert run_format(tmp_path, DYNAMIC, "--standalone", *options) == 0
    assert levels_of(tmp_path) == levels


def test_releases_have_names() -> None:
    assert level_of_release("3.3-IV3") == 7
    assert level_of_release("3.7") == level_of_release("3.7.2") == level_of_release("3.7-IV4") == 19
    assert level_of_release("4.3.1") == 30
    assert release_of_level(30) == "4.3-IV0"
    assert level_of_release("4") is level_of_release("4.4") is level_of_release("") is None


# Directories that are formatted already


def test_formatted_directories_can_be_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_format(tmp_path / "a", {}, "--cluster-id", CLUSTER) == 0
    both = {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}
    given = ["format", "--set", f"log.dirs={both['log.dirs']}", "--cluster-id", CLUSTER]
    assert main(given) == 1
    assert "--ignore-formatted" in capsys.readouterr().err
    before = (tmp_path / "a" / "meta.properties").read_bytes()
    assert main([*given, "--ignore-formatted"]) == 0
    assert (tmp_path / "a" / "meta.properties").read_bytes() == before
    assert CLUSTER in (tmp_path / "b" / "meta.properties").read_text()
    assert main([*given, "--ignore-formatted"]) == 0
    assert "all were formatted before" in capsys.readouterr().out


def test_a_directory_of_another_cluster_is_refused_with_both_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_format(tmp_path, {}, "--cluster-id", CLUSTER) == 0
    assert run_format(tmp_path, {}, "--cluster-id", FIRST, "--ignore-formatted") == 1
    assert f"belongs to cluster {CLUSTER}, not to {FIRST}" in capsys.readouterr().err


def test_a_new_id_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["format", "--random-uuid"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert len(id_from_text(line)) == 16


# The first users


def users_of(data: Path) -> dict[tuple[str, int], UserScramCredentialRecord]:
    records = read_bootstrap(Host.system().disk, str(data))
    return {
        (record.name, record.mechanism): record
        for record in records
        if isinstance(record, UserScramCredentialRecord)
    }


def test_a_new_cluster_has_the_users_that_were_given(tmp_path: Path) -> None:
    listed = tmp_path / "users.txt"
    listed.write_text("# first users\n\nSCRAM-SHA-256=[name=bob,password=builder]\n")
    given = (
        'SCRAM-SHA-512=[name=alice, iterations=8192, salt="N3E=", saltedpassword="YCE="]',
        'SCRAM-SHA-256=[password="a,b=c]",name=alice]',
        f"@{listed}",
    )
    options = [word for each in given for word in ("--add-scram", each)]
    assert run_format(tmp_path / "d", DYNAMIC, "--standalone", "-t", CLUSTER, *options) == 0
    users = users_of(tmp_path / "d")
    assert set(users) == {("alice", 2), ("alice", 1), ("bob", 1)}
    salted = users["alice", 2]
    assert (salted.iterations, salted.salt) == (8192, b"7q")
    for name, password in (("alice", "a,b=c]"), ("bob", "builder")):
        kept = users[name, 1]
        expected = scram_keys(
            "SCRAM-SHA-256", salted_password("SCRAM-SHA-256", password, kept.salt, 4096)
        )
        assert (kept.stored_key, kept.server_key) == expected
    assert len(users["bob", 1].salt) >= 16


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("SCRAM-SHA-1=[name=a,password=hidden]", "expected SCRAM-SHA-256="),
        ("SCRAM-SHA-256", "expected SCRAM-SHA-256="),
        ("SCRAM-SHA-256=name=a,password=hidden", "in brackets"),
        ("SCRAM-SHA-256=[password=hidden]", "expected name=USER"),
        ("SCRAM-SHA-256=[name=a]", "either password or saltedpassword"),
        ("SCRAM-SHA-256=[name=a,password=hidden,saltedpassword=YQ==]", "either password or"),
        ("SCRAM-SHA-256=[name=a,password=]", "the password is empty"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YQ==]", "expected salt"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YQ==,salt=hidden!]", "salt is not in base64"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YQ==,salt=é]", "salt is not in base64"),
        ("SCRAM-SHA-256=[name=a,password=hidden,iterations=9]", "expected 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hidden,iterations=99999]", "expected 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hidden,role=x]", "at most once"),
        ("SCRAM-SHA-256=[name=a,name=b,password=hidden]", "at most once"),
    ],
)
def test_a_user_that_cannot_be_read_is_refused_without_the_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, said: str
) -> None:
    assert run_format(tmp_path / "d", {}, "--add-scram", given) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "hidden" not in shown
    assert not (tmp_path / "d").exists()


def test_users_need_a_level_that_knows_them_and_are_given_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alice = ("--add-scram", "SCRAM-SHA-256=[name=alice,password=p]")
    assert run_format(tmp_path / "d", {}, "--release-version", "3.5-IV1", *alice) == 2
    assert "3.5-IV2 or later" in capsys.readouterr().err
    assert run_format(tmp_path / "d", {}, *alice, *alice) == 2
    assert "user alice is given twice" in capsys.readouterr().err
    assert run_format(tmp_path / "d", {}, "--release-version", "3.5-IV2", *alice) == 0
