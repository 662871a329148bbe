"""The plan of a local cluster: ids, ports, settings, and what is refused."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from headwater.cli import cluster_plan
from headwater.cli.cluster_plan import check_shared, free_ports, new_plan, plan_on_disk
from headwater.cli.errors import CommandError
from headwater.config import node_config
from headwater.config.properties import parse_properties


def settings_of(folder: Path, node_id: int) -> dict[str, str]:
    return dict(parse_properties((folder / f"node-{node_id}.properties").read_text()))


def identity_of(folder: Path, node_id: int) -> dict[str, str]:
    return dict(parse_properties((folder / f"node-{node_id}" / "meta.properties").read_text()))


def test_three_nodes_vote_and_keep_three_copies(tmp_path: Path) -> None:
    plan = plan_on_disk(str(tmp_path), 3, "127.0.0.1:0")
    assert [node.id for node in plan.nodes] == [1, 2, 3]
    assert len({node.port for node in plan.nodes} | {n.controller_port for n in plan.nodes}) == 6
    for node_id in (1, 2, 3):
        config = node_config(settings_of(tmp_path, node_id))
        assert config.node_id == node_id
        assert config.process_roles == ("broker", "controller")
        assert len(config.controller_quorum_bootstrap_servers) == 3
        assert config.broker_rack == socket.gethostname()
        assert config.default_replication_factor == config.offsets_topic_replication_factor == 3
        assert config.min_insync_replicas == 2
        assert config.warnings == ()
        found = identity_of(tmp_path, node_id)
        assert (found["cluster.id"], found["node.id"]) == (plan.cluster_id, str(node_id))
        assert f"{node_id}@127.0.0.1:" in plan.initial_controllers
        assert found["directory.id"] in plan.initial_controllers


@pytest.mark.parametrize(("count", "copies", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2)])
def test_copies_follow_the_number_of_nodes(
    tmp_path: Path, count: int, copies: int, in_sync: int
) -> None:
    plan = new_plan(str(tmp_path), count, "127.0.0.1:0")
    config = node_config(plan.properties(plan.nodes[0]))
    assert config.default_replication_factor == config.offsets_topic_replication_factor == copies
    assert config.min_insync_replicas == in_sync


def test_at_most_five_nodes_vote(tmp_path: Path) -> None:
    plan = new_plan(str(tmp_path), 7, "127.0.0.1:0")
    assert [node.id for node in plan.voters] == [1, 2, 3, 4, 5]
    for node in plan.nodes[5:]:
        config = node_config(plan.properties(node))
        assert config.process_roles == ("broker",)
        assert config.controller_listeners == ()


def test_any_free_ports_are_none_of_those_for_outgoing_connections() -> None:
    path = Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest = int(path.read_text().split()[0]) if path.exists() else 32_768
    if lowest < 32_000:
        pytest.skip(f"this host takes ports from {lowest} on for outgoing connections")
    ports = free_ports("127.0.0.1", 0, 20)
    assert len(set(ports)) == 20
    assert max(ports) < lowest


def test_the_others_get_the_next_free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_plan, "_is_free", lambda host, port: port not in (9093, 9095))
    assert free_ports("127.0.0.1", 9092, 3) == [9092, 9094, 9096]
    assert free_ports("127.0.0.1", 9092, 3, taken={9094}) == [9092, 9096, 9097]
    with pytest.raises(CommandError, match=r"127\.0\.0\.1:9093 is in use"):
        free_ports("127.0.0.1", 9093, 3)


def test_a_second_start_continues_the_cluster(tmp_path: Path) -> None:
    first = plan_on_disk(str(tmp_path), 3, "127.0.0.1:0")
    identities = [identity_of(tmp_path, node.id) for node in first.nodes]
    with (tmp_path / "node-2.properties").open("a") as file:
        file.write("log.retention.hours=5\n")
    second = plan_on_disk(str(tmp_path), 3, None)
    assert second.cluster_id == first.cluster_id
    assert [(n.port, n.controller_port) for n in second.nodes] == [
        (n.port, n.controller_port) for n in first.nodes
    ]
    assert [identity_of(tmp_path, node.id) for node in first.nodes] == identities
    assert settings_of(tmp_path, 2)["log.retention.hours"] == "5"


def test_a_folder_that_was_moved_and_other_ports_are_written_down(tmp_path: Path) -> None:
    first = plan_on_disk(str(tmp_path / "a"), 2, "127.0.0.1:0")
    with (tmp_path / "a" / "node-2.properties").open("a") as file:
        file.write("log.retention.hours=5\n")
    moved = (tmp_path / "a").rename(tmp_path / "b")
    second = plan_on_disk(str(moved), 2, ":0")
    assert settings_of(moved, 2)["log.dirs"] == f"{moved}/node-2"
    assert settings_of(moved, 2)["log.retention.hours"] == "5"
    assert second.nodes[1].listeners == settings_of(moved, 2)["listeners"]
    assert second.nodes[0].host == ""
    assert [n.controller_port for n in second.nodes] == [n.controller_port for n in first.nodes]


def test_a_directory_that_was_lost_does_not_get_its_vote_back(tmp_path: Path) -> None:
    plan_on_disk(str(tmp_path), 3, "127.0.0.1:0")
    before = identity_of(tmp_path, 2)
    for path in sorted((tmp_path / "node-2").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    plan = plan_on_disk(str(tmp_path), 3, None)
    after = identity_of(tmp_path, 2)
    assert after["cluster.id"] == before["cluster.id"] == plan.cluster_id
    assert after["directory.id"] != before["directory.id"]
    assert not (tmp_path / "node-2" / "__cluster_metadata-0").exists()


def refusal(folder: Path, count: int) -> list[str]:
    with pytest.raises(CommandError) as refused:
        plan_on_disk(str(folder), count, None)
    return str(refused.value).splitlines()


def test_another_number_of_nodes_is_refused_with_the_commands_that_change_it(
    tmp_path: Path,
) -> None:
    plan = plan_on_disk(str(tmp_path), 3, "127.0.0.1:0")
    what, then, make, *others = refusal(tmp_path, 5)
    assert what == f"{tmp_path} has a cluster of 3 nodes, not of 5"
    assert "continue it with --nodes 3; to add node 4" in then
    assert [line.strip() for line in others] == [
        f"headwater format --config {tmp_path}/node-4.properties --cluster-id {plan.cluster_id} "
        "--no-initial-controllers",
        f"headwater start --config {tmp_path}/node-4.properties",
        f"sed -i 's/^nodes=.*/nodes=4/' {tmp_path}/cluster.properties",
    ]
    subprocess.run(make, shell=True, check=True)
    first, added = settings_of(tmp_path, 1), settings_of(tmp_path, 4)
    assert (added["node.id"], added["log.dirs"]) == ("4", f"{tmp_path}/node-4")
    differing = {"node.id", "log.dirs", "listeners"}
    assert {key for key in first if first[key] != added[key]} == differing
    _, then, *others = refusal(tmp_path, 2)
    assert "to remove node 3 once its process has ended" in then
    at = f"--bootstrap 127.0.0.1:{plan.nodes[0].port} --yes"
    assert [line.strip() for line in others] == [
        f"headwater cluster quorum remove 3 {at}",
        f"headwater cluster unregister 3 {at}",
        f"sed -i 's/^nodes=.*/nodes=2/' {tmp_path}/cluster.properties",
    ]


def test_a_sixth_node_is_added_as_a_broker(tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    plan_on_disk(str(folder), 5, "127.0.0.1:0")
    _, _, make, *_ = refusal(folder, 6)
    subprocess.run(make, shell=True, check=True)
    added = settings_of(folder, 6)
    assert added["log.dirs"] == f"{folder}/node-6"
    assert added["process.roles"] == "broker"
    assert "CONTROLLER" not in added["listeners"]
    assert "controller.quorum.auto.join.enable" not in added


def test_settings_that_an_earlier_release_did_not_write_are_added(tmp_path: Path) -> None:
    plan_on_disk(str(tmp_path), 3, "127.0.0.1:0")
    written = settings_of(tmp_path, 2)
    file = tmp_path / "node-2.properties"
    lines = [line for line in file.read_text().splitlines() if "replication.factor" not in line]
    file.write_text("\n".join([*lines, "num.partitions=7"]) + "\n")
    plan_on_disk(str(tmp_path), 3, None)
    assert settings_of(tmp_path, 2) == written | {"num.partitions": "7"}


def test_the_data_of_a_single_node_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("node.id=1\n")
    with pytest.raises(CommandError, match="single node"):
        plan_on_disk(str(tmp_path), 3, "127.0.0.1:0")


def test_what_an_interrupted_start_left_is_not_taken(tmp_path: Path) -> None:
    plan_on_disk(str(tmp_path), 3, "127.0.0.1:0")
    (tmp_path / "cluster.properties").unlink()
    with pytest.raises(CommandError, match="interrupted"):
        plan_on_disk(str(tmp_path), 3, "127.0.0.1:0")


@pytest.mark.parametrize("key", ["node.id", "listeners", "log.dirs", "controller.quorum.voters"])
def test_a_setting_that_differs_from_node_to_node_is_refused(key: str) -> None:
    check_shared({"num.partitions": "3"})
    with pytest.raises(CommandError, match=f"{key}=1: --nodes sets it"):
        check_shared({key: "1"})
