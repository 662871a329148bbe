"""Advertised addresses of a cluster: for clients of each listener, and between its nodes."""

from __future__ import annotations

from pathlib import Path

from harness.clusters import Cluster
from harness.nodes import free_port
from harness.wire import Wire
from headwater.blocking import Admin
from headwater.io import Host

NAMES = {
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,PUBLIC:PLAINTEXT,"
    "CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
}


def test_clients_of_each_listener_get_its_addresses_and_none_is_a_wildcard(tmp_path: Path) -> None:
    """INSIDE has the host of its listener, OUTSIDE is on every interface, PUBLIC is advertised."""
    cluster = Cluster(tmp_path, settings=NAMES)
    outside = {node_id: free_port() for node_id in cluster.members}
    public = {node_id: free_port() for node_id in cluster.members}
    for node_id, member in cluster.members.items():
        inside = f"INSIDE://{member.node.bootstrap}"
        controller = f"CONTROLLER://:{member.node.controller_port}"
        cluster.own_settings[node_id] = {
            "listeners": f"{inside},OUTSIDE://:{outside[node_id]},"
            f"PUBLIC://127.0.0.1:{public[node_id]},{controller}",
            "advertised.listeners": f"{inside},OUTSIDE://:{outside[node_id]},"
            f"PUBLIC://node{node_id}.example:9092,CONTROLLER://:{member.node.controller_port}",
        }
    name = Host.system().network.host_name()
    with cluster.start():
        for node_id, member in cluster.members.items():
            expected = {
                member.node.bootstrap: {
                    each: ("127.0.0.1", other.node.port) for each, other in cluster.members.items()
                },
                f"127.0.0.1:{outside[node_id]}": {
                    each: (name, port) for each, port in outside.items()
                },
                f"127.0.0.1:{public[node_id]}": {
                    each: (f"node{each}.example", 9092) for each in cluster.members
                },
            }
            for address, told in expected.items():
                with Wire(address) as wire:
                    brokers = wire.describe_cluster().brokers
                assert {b.broker_id: (b.host, b.port) for b in brokers} == told
        # Replicas are fetched over INSIDE.
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic("orders", partitions=3, replication=3)
            assert len(admin.describe_topic("orders").partitions) == 3
        with Admin(bootstrap_controllers=cluster.bootstrap_controllers) as admin:
            controllers = {
                each.id: (each.host, each.port) for each in admin.describe_cluster().nodes
            }
        assert controllers == {
            each: (name, other.node.controller_port) for each, other in cluster.members.items()
        }


def test_a_client_is_told_where_it_came_to_only_for_the_node_it_talks_to(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for node_id, member in cluster.members.items():
        cluster.own_settings[node_id] = {
            "listeners": f"PLAINTEXT://:{member.node.port},"
            f"CONTROLLER://127.0.0.1:{member.node.controller_port}"
        }
    name = Host.system().network.host_name()
    with cluster.start():
        for node_id, member in cluster.members.items():
            with Wire(f"127.0.0.2:{member.node.port}") as wire:
                brokers = wire.describe_cluster().brokers
            assert {b.broker_id: (b.host, b.port) for b in brokers} == {
                each: ("127.0.0.2" if each == node_id else name, other.node.port)
                for each, other in cluster.members.items()
            }
