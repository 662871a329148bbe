"""Nodes that cannot join: each says so in one line, with both sides and what to do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.nodes import free_port
from headwater.cli.main import main
from headwater.metadata.features import LEVEL_LATEST
from headwater.metadata.snapshot import encode_snapshot, feature_records
from headwater.testing import HeadwaterCluster
from tests.integration.test_cluster_start import Started
from tests.support.processes import HEADWATER

OTHER_CLUSTER = "3Db5QLSqSZieL3rJBUUegA"


@pytest.fixture(autouse=True)
def _streams(capsys: pytest.CaptureFixture[str]) -> None:
    """Commands that run in this process write to streams of their own."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[HeadwaterCluster]:
    with HeadwaterCluster(nodes=1) as running:
        yield running


def formatted(
    folder: Path, controllers: str, *options: str, node_id: int = 4, roles: str = "broker"
) -> list[str]:
    """Formats a node of a cluster; returns the options that start it."""
    folder.mkdir()
    listeners = [f"PLAINTEXT://127.0.0.1:{free_port()}"] if "broker" in roles else []
    if "controller" in roles:
        listeners.append(f"CONTROLLER://127.0.0.1:{free_port()}")
    file = folder / "server.properties"
    file.write_text(
        f"node.id={node_id}\nprocess.roles={roles}\nlisteners={','.join(listeners)}\n"
        "controller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers={controllers}\nlog.dirs={folder / 'data'}\n"
    )
    assert main(["format", "--config", str(file), *options]) == 0
    return ["--config", str(file)]


def test_another_clusters_node_is_told_both_sides(
    tmp_path: Path, cluster: HeadwaterCluster
) -> None:
    given = formatted(tmp_path / "n", cluster.controllers, "--cluster-id", OTHER_CLUSTER)
    with Started(*given) as started:
        line = started.wait_line("INCONSISTENT_CLUSTER_ID")
        assert cluster.controllers in line
        assert f"formatted for cluster {OTHER_CLUSTER}" in line
        assert "format a new directory" in line
        started.wait_line("waiting for")
        said = [each for each in started.lines if "WARN" in each]
        assert len(said) == 1, "\n".join(said)


def test_a_second_node_with_the_same_id_is_told_so(
    tmp_path: Path, cluster: HeadwaterCluster
) -> None:
    given = formatted(
        tmp_path / "n", cluster.controllers, "--cluster-id", cluster.cluster_id, node_id=1
    )
    with Started(*given) as started:
        line = started.wait_line("says that the leader is node 1")
        assert "give one of the two another node.id" in line
        assert cluster.running == [1]


def test_a_second_broker_with_the_same_id_is_told_so(
    tmp_path: Path, cluster: HeadwaterCluster
) -> None:
    given = [
        formatted(tmp_path / name, cluster.controllers, "--cluster-id", cluster.cluster_id)
        for name in ("first", "second")
    ]
    with Started(*given[0]) as first:
        first.ready()
        with Started(*given[1]) as second:
            line = second.wait_line("knows a live broker 4")
            assert "give one of the two another node.id" in line
        assert first.process.poll() is None


def test_a_node_whose_quorum_cannot_be_reached_says_what_it_waits_for(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    given = formatted(tmp_path / "n", nobody, "--cluster-id", OTHER_CLUSTER)
    with Started(*given) as started:
        line = started.wait_line("waiting for a leader of the quorum")
        assert nobody in line
        assert "refused" in line


def test_a_controller_that_is_no_voter_follows_and_does_not_elect_itself(
    tmp_path: Path, cluster: HeadwaterCluster
) -> None:
    given = formatted(
        tmp_path / "n",
        cluster.controllers,
        "--cluster-id",
        cluster.cluster_id,
        "--no-initial-controllers",
        node_id=5,
        roles="controller",
    )
    with Started(*given) as started:
        started.ready()
        assert cluster.controller() == 1
        cluster.wait_voters(1)


def test_a_first_controller_that_was_not_told_so_waits_and_does_not_elect_itself(
    tmp_path: Path,
) -> None:
    """Formatted with --no-initial-controllers where --standalone was meant."""
    given = formatted(
        tmp_path / "n",
        f"127.0.0.1:{free_port()}",
        "--cluster-id",
        OTHER_CLUSTER,
        "--no-initial-controllers",
        roles="broker,controller",
    )
    with Started(*given) as started:
        started.wait_line(r"waiting for a leader of the quorum \(voters: unknown\)")


def test_a_static_voter_that_the_leader_does_not_count_is_told_so(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    first, second = f"1@127.0.0.1:{ports[0]}", f"2@127.0.0.1:{ports[1]}"
    given = [
        static_controller(tmp_path / f"{node_id}", node_id, port, voters)
        for node_id, port, voters in ((1, ports[0], first), (2, ports[1], f"{first},{second}"))
    ]
    with Started(*given[0]) as leader:
        leader.ready()
        with Started(*given[1]) as other:
            line = other.wait_line("does not count this node")
            assert "node 1, which leads the quorum" in line
            assert "controller.quorum.voters names 1, 2 here" in line
            assert "the same value on all controllers" in line


def test_two_static_voters_with_one_id_are_told_whose_address_is_wrong(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    voters = f"1@127.0.0.1:{ports[0]},2@127.0.0.1:{ports[1]}"
    given = [static_controller(tmp_path / f"{port}", 1, port, voters) for port in ports]
    with Started(*given[0]) as first, Started(*given[1]):
        line = first.wait_line("refused a vote: INVALID_VOTER_KEY")
        assert f"says that node 2 is at 127.0.0.1:{ports[1]}" in line
        assert "the node there has another node.id: correct one of the two" in line


def test_a_login_where_none_is_asked_for_is_said_so(
    tmp_path: Path, cluster: HeadwaterCluster
) -> None:
    given = formatted(tmp_path / "n", cluster.controllers, "--cluster-id", cluster.cluster_id)
    with (tmp_path / "n" / "server.properties").open("a") as file:
        file.write(
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT\n"
            "sasl.mechanism.controller.protocol=PLAIN\n"
            "listener.name.controller.sasl.enabled.mechanisms=PLAIN\n"
            "listener.name.controller.plain.sasl.jaas.config="
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="node" password="secret";\n'
        )
    with Started(*given) as started:
        line = started.wait_line("waiting for a leader of the quorum")
        assert f"{cluster.controllers}, PLAIN as 'node'" in line
        assert "takes no logins; is it a PLAINTEXT listener?" in line


def static_controller(folder: Path, node_id: int, port: int, voters: str) -> list[str]:
    folder.mkdir()
    file = folder / "server.properties"
    file.write_text(
        f"node.id={node_id}\nprocess.roles=controller\nlisteners=CONTROLLER://127.0.0.1:{port}\n"
        "controller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters={voters}\nlog.dirs={folder / 'data'}\n"
    )
    assert main(["format", "--config", str(file), "--cluster-id", OTHER_CLUSTER]) == 0
    return ["--config", str(file)]


def test_a_quorum_at_the_listener_of_brokers_is_named_with_a_remedy(
    tmp_path: Path, cluster: HeadwaterCluster
) -> None:
    given = formatted(tmp_path / "n", cluster.bootstrap, "--cluster-id", cluster.cluster_id)
    with Started(*given) as started:
        line = started.wait_line("refused to send the metadata log")
        assert cluster.bootstrap in line
        assert "name listeners of controller.listener.names" in line


def test_a_node_of_an_earlier_release_than_its_cluster_ends(tmp_path: Path) -> None:
    port = free_port()
    given = static_controller(tmp_path / "n", 1, port, f"1@127.0.0.1:{port}")
    levels = encode_snapshot(
        feature_records({"metadata.version": LEVEL_LATEST + 1}),
        metadata_version=LEVEL_LATEST,
        epoch=0,
        timestamp=0,
        now_ms=0,
    )
    (tmp_path / "n" / "data" / "bootstrap.checkpoint").write_bytes(levels)
    with Started(*given) as started:
        line = started.wait_line("the cluster is at metadata.version 31")
        assert "supports 7 to 30" in line
        assert started.wait() != 0


def test_a_producer_on_the_controller_port_is_refused(cluster: HeadwaterCluster) -> None:
    done = subprocess.run(
        [
            *(str(HEADWATER), "produce", "orders", "--value", "x"),
            *("--bootstrap", cluster.controllers),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "controller" in done.stderr
