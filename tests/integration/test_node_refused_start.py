"""Starts that a node refuses: one line says why, and no file is made or changed."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from pathlib import Path

import pytest

from harness.nodes import free_port
from harness.wire import Wire
from headwater import _core
from headwater.broker.formatting import METADATA_LOG, FormatRefused, format_directories
from headwater.broker.node import Node
from headwater.cli.main import main
from headwater.config import ConfigError, node_config
from headwater.errors import ErrorCode
from headwater.io import Host
from headwater.metadata import ResourceType
from headwater.metadata.batches import encode_batch, encode_control_batch
from headwater.metadata.features import LEVEL_LATEST
from headwater.observability import Log
from headwater.protocol import Message
from headwater.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headwater.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headwater.protocol.records.metadata_topics import ConfigRecord
from headwater.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from headwater.storage.log_dirs import DirectoryRefused, read_meta_properties
from headwater.testing import EmbeddedBroker

CLUSTER = "3Db5QLSqSZieL3rJBUUegA"
PORT = free_port()  # of the controller; other runs of the tests have theirs
COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{PORT}",
    "controller.listener.names": "CONTROLLER",
}


@pytest.fixture(autouse=True)
def _streams(capsys: pytest.CaptureFixture[str]) -> None:
    """Commands that run in this process write to streams of their own."""


def start(data: Path, settings: dict[str, str]) -> None:
    """Starts a node, on a free port if the settings do not name one, and stops it."""

    async def run() -> None:
        host = Host.system()
        own = {"log.dirs": str(data), "listeners": "PLAINTEXT://127.0.0.1:0"}
        node = Node(node_config(own | settings), host, Log(host.clock, lambda line: None))
        await node.start()
        await node.stop()

    asyncio.run(run())


def fingerprints(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def append_to_metadata(data: Path, *records: Message, control: bool = False) -> None:
    """Writes one more batch into a metadata log, as another node's controller would have."""
    (segment,) = sorted((data / METADATA_LOG).glob("*.log"))
    last = _core.scan(segment.read_bytes())[0][-1]
    where = {"base_offset": last.last_offset + 1, "epoch": last.leader_epoch}
    if control:
        batch = encode_control_batch(records, now_ms=0, **where)
    else:
        batch = encode_batch(records, metadata_version=LEVEL_LATEST, now_ms=0, **where)
    with segment.open("ab") as file:
        file.write(batch)


def topic_setting(key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ResourceType.TOPIC, resource_name="orders", name=key, value=value
    )


# Directories


def test_a_folder_with_other_files_is_neither_formatted_nor_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    docs, data = tmp_path / "docs", tmp_path / "data"
    (docs / "chapter-1").mkdir(parents=True)
    (docs / "notes.txt").write_text("mine")
    for command in ("start", "format"):
        assert main([command, "--data", str(docs)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{docs} is not empty and does not belong to a node (chapter-1, notes.txt)" in line
        assert "choose an empty" in line
    start(data, {})
    before = fingerprints(data)
    with pytest.raises(FormatRefused, match=r"docs is not empty"):
        start(data, {"log.dirs": f"{data},{docs}"})  # a further directory of a node
    assert fingerprints(data) == before
    assert sorted(path.name for path in docs.iterdir()) == ["chapter-1", "notes.txt"]


def test_a_new_file_system_and_an_interrupted_format_are_empty(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / METADATA_LOG).mkdir()
    (tmp_path / METADATA_LOG / "00000000000000000000-0000000000.checkpoint").write_bytes(b"")
    for name in (".lock", "bootstrap.checkpoint", "meta.properties.tmp", ".headwater-reserve"):
        (tmp_path / name).write_bytes(b"")
    start(tmp_path, {})
    assert (tmp_path / "meta.properties").exists()


def test_a_node_that_lost_its_identity_is_not_formatted_again(tmp_path: Path) -> None:
    """It would begin an empty cluster and put the logs aside as strays."""
    with EmbeddedBroker(data=tmp_path, topics={"orders": 1}):
        pass
    (tmp_path / "meta.properties").unlink()
    before = fingerprints(tmp_path)
    with pytest.raises(FormatRefused, match=r"has data of a node .* restore that file"):
        start(tmp_path, {})
    assert fingerprints(tmp_path) == before


def test_directories_that_cannot_belong_together_are_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    both = {"log.dirs": f"{first},{second}"}
    start(first, both)
    properties = second / "meta.properties"
    text = properties.read_text()
    own = dict(line.split("=") for line in text.splitlines()[1:])
    others = dict(
        line.split("=") for line in (first / "meta.properties").read_text().splitlines()[1:]
    )
    for old, new, said in (
        (own["cluster.id"], CLUSTER, "belong to different clusters"),
        (own["directory.id"], others["directory.id"], "same directory.id"),
        (own["directory.id"], "AAAAAAAAAAAAAAAAAAAAAA", "is reserved"),
        ("node.id=1", "node.id=2", "belongs to node 2"),
    ):
        properties.write_text(text.replace(old, new))
        before = fingerprints(tmp_path)
        with pytest.raises((FormatRefused, DirectoryRefused), match=said):
            start(first, both)
        assert fingerprints(tmp_path) == before
    properties.write_text(text)
    start(first, both)


# A quorum


def test_a_node_with_only_bootstrap_servers_does_not_elect_itself(tmp_path: Path) -> None:
    settings = COMBINED | {"controller.quorum.bootstrap.servers": "kafka1:19093"}
    data = tmp_path / "data"
    with pytest.raises(FormatRefused, match="headwater format"):
        start(data, settings)
    assert not data.exists()
    assert main(["format", "--data", str(data), *as_options(settings)]) == 2
    assert not data.exists()


def test_a_node_of_a_quorum_never_formats_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = COMBINED | {"controller.quorum.voters": "1@a:19093,2@b:19093,3@c:19093"}
    data = tmp_path / "data"
    assert main(["start", "--data", str(data), *as_options(settings)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{data} is not formatted" in line
    assert "run `headwater format`" in line
    assert not data.exists()


@pytest.mark.parametrize(
    ("quorum", "option"),
    [
        ({"controller.quorum.voters": f"1@localhost:{PORT}"}, f"--cluster-id={CLUSTER}"),
        ({"controller.quorum.bootstrap.servers": f"localhost:{PORT}"}, "--standalone"),
    ],
)
def test_a_node_that_is_given_a_quorum_starts_once_it_is_formatted(
    tmp_path: Path, quorum: dict[str, str], option: str
) -> None:
    data = tmp_path / "data"
    settings = COMBINED | quorum
    with pytest.raises(FormatRefused, match=f"{data} is not formatted"):
        start(data, settings)
    assert not data.exists()
    assert main(["format", "--data", str(data), option, *as_options(settings)]) == 0
    start(data, settings)
    start(data, settings)


def test_a_directory_that_says_this_node_votes_alone_needs_no_dns(tmp_path: Path) -> None:
    config = node_config(COMBINED | {"log.dirs": str(tmp_path)})
    format_directories(Host.system(), config)
    start(tmp_path, COMBINED | {"controller.quorum.bootstrap.servers": f"this-machine:{PORT}"})


def test_a_directory_of_several_voters_needs_their_addresses(tmp_path: Path) -> None:
    start(tmp_path, COMBINED)
    found = read_meta_properties(Host.system().disk, str(tmp_path))
    assert found is not None
    assert found.directory_id is not None
    voters = VoterSet.of(
        Voter(ReplicaKey(1, found.directory_id), (VoterEndpoint("CONTROLLER", "a", 19093),)),
        Voter(ReplicaKey(2, b"2" * 16), (VoterEndpoint("CONTROLLER", "b", 19093),)),
    )
    append_to_metadata(tmp_path, voters.to_record(), control=True)
    before = fingerprints(tmp_path)
    with pytest.raises(DirectoryRefused, match=r"nodes 1, 2.*bootstrap\.servers=a:19093,b:19093"):
        start(tmp_path, COMBINED)
    assert fingerprints(tmp_path) == before


def test_the_voters_of_a_static_quorum_do_not_change(tmp_path: Path) -> None:
    settings = COMBINED | {"controller.quorum.voters": f"1@localhost:{PORT}"}
    format_directories(Host.system(), node_config(settings | {"log.dirs": str(tmp_path)}))
    start(tmp_path, settings)
    state = tmp_path / METADATA_LOG / "quorum-state"
    text = state.read_text().replace('[{"voterId":1}]', '[{"voterId":1},{"voterId":2}]')
    state.write_text(text)
    with pytest.raises(DirectoryRefused, match=r"nodes 1, 2, and controller\.quorum\.voters .* 1;"):
        start(tmp_path, settings)
    with pytest.raises(DirectoryRefused, match=r"nodes 1, 2, and controller.* names none"):
        start(tmp_path, COMBINED)
    servers = {"controller.quorum.bootstrap.servers": f"localhost:{PORT}"}
    with pytest.raises(DirectoryRefused, match=r"only controller\.quorum\.bootstrap\.servers"):
        start(tmp_path, COMBINED | servers)


# Security


def test_a_listener_for_kerberos_is_refused_in_one_line_and_nothing_is_formatted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:19092",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
    }
    for command in ("start", "format"):
        assert main([command, "--data", str(data), *as_options(settings)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "sasl.enabled.mechanisms='GSSAPI': Kerberos is not supported" in line
        assert not data.exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "listener.name.ssl.ssl.keystore.location='': expected a key"),
        ({"ssl.keystore.location": "/no/such"}, "ssl.keystore.location='/no/such': it cannot be"),
        (
            {"ssl.keystore.key": "s3cret", "ssl.keystore.certificate.chain": "s3cret"},
            "ssl.keystore.certificate.chain=[hidden]: it is not in PEM format",
        ),
        ({"ssl.keystore.location": "/dev/null"}, "it cannot be read: it is not a regular file"),
    ],
)
def test_a_listener_without_a_usable_certificate_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, str], said: str
) -> None:
    data = tmp_path / "data"
    listening = {
        "listeners": "SSL://127.0.0.1:19092",
        "security.inter.broker.protocol": "SSL",
    }
    assert main(["start", "--data", str(data), *as_options(listening | settings)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert "s3cret" not in line
    assert not data.exists()


def test_a_truststore_without_certificates_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The certificates of the system must not take their place.
    store = tmp_path / "trusted.pem"
    store.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    settings = {
        "listeners": "SSL://127.0.0.1:19092",
        "security.inter.broker.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(store),
    }
    assert main(["start", "--data", str(tmp_path / "data"), *as_options(settings)]) == 2
    assert f"ssl.truststore.location='{store}': it holds no" in capsys.readouterr().err


def test_listen_does_not_replace_a_protected_listener(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    protected = {
        "listeners": "SSL://127.0.0.1:19092",
        "security.inter.broker.protocol": "SSL",
    }
    options = [*as_options(protected), "--listen", "127.0.0.1:0"]
    assert main(["start", "--data", str(data), *options]) == 2
    assert "would replace SSL://127.0.0.1:19092, which is protected" in capsys.readouterr().err
    assert not data.exists()


@pytest.mark.parametrize("listen", [":0", "0.0.0.0:0", "[::]:0"])
@pytest.mark.parametrize("nodes", [[], ["--nodes", "3"]])
def test_listen_beyond_loopback_without_authentication_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], listen: str, nodes: list[str]
) -> None:
    data = tmp_path / "data"
    assert main(["start", "--data", str(data), "--listen", listen, *nodes]) == 2
    assert "--insecure" in capsys.readouterr().err
    assert not data.exists()


def test_a_listener_of_a_file_beyond_loopback_is_served_with_a_warning(tmp_path: Path) -> None:
    with EmbeddedBroker({"listeners": "PLAINTEXT://0.0.0.0:0"}, data=tmp_path) as broker:
        (line,) = [each for each in broker.log_lines if "no authentication" in each]
    assert "WARN  PLAINTEXT://0.0.0.0:0: everybody who reaches this" in line


def test_listen_takes_no_protocol(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", "--data", str(tmp_path), "--listen", "SSL://127.0.0.1:19092"]) == 2
    assert "--listen SSL://127.0.0.1:19092: expected HOST:PORT" in capsys.readouterr().err


def test_an_authorizer_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(ConfigError, match="authorizer"):
        start(data, {"authorizer.class.name": "org.example.Authorizer"})
    assert not data.exists()


# Tiered storage


def test_a_directory_with_a_tiered_topic_is_refused_and_not_changed(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path, topics={"orders": 1}):
        pass
    append_to_metadata(tmp_path, topic_setting("remote.storage.enable", "true"))
    before = fingerprints(tmp_path)
    with pytest.raises(DirectoryRefused, match=r"remote\.storage\.enable=true\): orders"):
        start(tmp_path, {"listeners": "PLAINTEXT://127.0.0.1:0"})
    assert fingerprints(tmp_path) == before


@pytest.mark.parametrize("value", ["false", None])
def test_a_topic_that_is_not_tiered_any_more_is_served(tmp_path: Path, value: str | None) -> None:
    with EmbeddedBroker(data=tmp_path, topics={"orders": 1}):
        pass
    append_to_metadata(tmp_path, topic_setting("remote.storage.enable", "true"))
    append_to_metadata(tmp_path, topic_setting("remote.storage.enable", value))
    start(tmp_path, {"listeners": "PLAINTEXT://127.0.0.1:0"})


def test_tiered_storage_is_refused_for_new_topics_and_for_those_that_exist() -> None:
    with EmbeddedBroker(topics={"orders": 1}) as broker, Wire(broker.bootstrap) as wire:
        setting = CreatableTopicConfig(name="remote.storage.enable", value="true")
        topic = CreatableTopic(
            name="tiered", num_partitions=1, replication_factor=1, configs=[setting]
        )
        created = wire.ask(CreateTopicsRequest(topics=[topic])).topics[0]
        assert created.error_code == ErrorCode.INVALID_CONFIG
        assert "tiered storage is not supported yet" in created.error_message
        change = AlterConfigsResource(
            resource_type=ResourceType.TOPIC,
            resource_name="orders",
            configs=[
                AlterableConfig(name="remote.storage.enable", config_operation=0, value="true")
            ],
        )
        altered = wire.ask(IncrementalAlterConfigsRequest(resources=[change], validate_only=False))
        assert altered.responses[0].error_code == ErrorCode.INVALID_CONFIG


# Ports


def test_a_port_in_use_leaves_no_formatted_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
            start(data, {"listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    assert not data.exists()


def as_options(settings: dict[str, str]) -> list[str]:
    return [option for key, value in settings.items() for option in ("--set", f"{key}={value}")]


def test_the_directory_of_another_node_is_refused_with_both_ids(tmp_path: Path) -> None:
    start(tmp_path, {"listeners": "PLAINTEXT://127.0.0.1:0"})
    before = fingerprints(tmp_path)
    with pytest.raises(DirectoryRefused, match="belongs to node 1, and this is node 7"):
        start(tmp_path, {"listeners": "PLAINTEXT://127.0.0.1:0", "node.id": "7"})
    assert fingerprints(tmp_path) == before
