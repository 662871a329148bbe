"""Listeners that are added, moved and removed while a node runs (KIP-226)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.clusters import Cluster
from harness.nodes import free_port
from harness.wire import Wire, until
from headwater import Admin, Consumer, Producer
from headwater.client.admin.configs import broker_config
from headwater.client.errors import ClientError
from headwater.security.dev_certificates import issue, new_authority
from headwater.testing import EmbeddedBroker

MAP = "listener.security.protocol.map"
OWN = "PLAINTEXT://127.0.0.1:0"  # as the broker was started


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        yield broker


def alter(broker: EmbeddedBroker, changes: Mapping[str, str | None]) -> None:
    async def ask() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.alter_config(broker_config(1), changes)

    asyncio.run(ask())


def opens(address: str) -> bool:
    try:
        Wire(address).socket.close()
    except OSError:
        return False
    return True


def await_open(address: str, *, is_open: bool = True) -> None:
    until(lambda: opens(address) is is_open, f"{address} {'opens' if is_open else 'closes'}")


async def there_and_back(address: str, **settings: Any) -> None:
    async with Producer(address, **settings) as producer:
        await producer.send("t", b"v")
    async with Consumer(
        address, topics=["t"], group=None, auto_offset_reset="earliest", **settings
    ) as consumer:
        async for record in consumer:
            assert record.value == b"v"
            return


def test_a_listener_is_added_moved_and_removed(broker: EmbeddedBroker) -> None:
    first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))
    alter(broker, {"listeners": f"{OWN},NEW://{first}", MAP: "PLAINTEXT:PLAINTEXT,NEW:PLAINTEXT"})
    await_open(first)
    asyncio.run(there_and_back(first))
    with Wire(first) as before:
        assert before.is_served()
        alter(broker, {"listeners": f"{OWN},NEW://{second}"})
        await_open(second)
        assert not opens(first)
        assert before.is_served()  # existing connections stay
    asyncio.run(there_and_back(second))
    with Wire(second) as left:
        assert left.is_served()
        alter(broker, {"listeners": OWN})
        await_open(second, is_open=False)
        assert left.socket.recv(1) == b""
    asyncio.run(there_and_back(broker.bootstrap))


def test_a_listener_with_tls_and_users_is_added_to_a_broker_without_any(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    made = new_authority("tests", now=now, days=1)
    certificate = issue(made, "broker", ("127.0.0.1",), now=now, days=1)
    authority = tmp_path / "ca.pem"
    authority.write_text(made.certificate)
    address = f"127.0.0.1:{free_port()}"
    prefix = "listener.name.users"
    changes = {
        "listeners": f"{OWN},USERS://{address}",
        MAP: "PLAINTEXT:PLAINTEXT,USERS:SASL_SSL",
        f"{prefix}.ssl.keystore.type": "PEM",
        f"{prefix}.ssl.keystore.key": certificate.key,
        f"{prefix}.ssl.keystore.certificate.chain": certificate.certificate,
        f"{prefix}.sasl.enabled.mechanisms": "PLAIN",
        f"{prefix}.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'user_alice="wonderland";'
        ),
    }
    with pytest.raises(ClientError, match="expected a key and a certificate for listener USERS"):
        alter(broker, {k: v for k, v in changes.items() if "keystore" not in k})
    with pytest.raises(ClientError, match="for listener USERS set sasl"):
        alter(broker, {k: v for k, v in changes.items() if "enabled" not in k})
    assert not opens(address)
    alter(broker, changes)
    await_open(address)
    login = {
        "security_protocol": "SASL_SSL",
        "ssl_ca_location": str(authority),
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": "wonderland",
    }
    asyncio.run(there_and_back(address, **login))


def test_a_listener_for_everybody_is_named_in_a_warning_once(broker: EmbeddedBroker) -> None:
    near, far = f"127.0.0.2:{free_port()}", f"0.0.0.0:{free_port()}"
    protocols = "PLAINTEXT:PLAINTEXT,NEAR:PLAINTEXT,FAR:PLAINTEXT"
    alter(broker, {"listeners": f"{OWN},NEAR://{near},FAR://{far}", MAP: protocols})
    await_open(near)
    alter(broker, {"listeners": f"{OWN},FAR://{far}"})
    await_open(near, is_open=False)
    (warning,) = (line for line in broker.log_lines if "it has no authentication" in line)
    assert f" FAR://{far}: everybody" in warning
    assert "NEAR" not in warning


def test_changes_that_cannot_be_made_are_refused(broker: EmbeddedBroker) -> None:
    protocols = "PLAINTEXT:PLAINTEXT,NEW:PLAINTEXT,CONTROLLER:PLAINTEXT"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for changes, told in (
            ({"listeners": f"{OWN},NEW://127.0.0.1:1"}, "expected NEW to have a protocol"),
            ({"listeners": f"{OWN},NEW://127.0.0.1:{port}", MAP: protocols}, "already in use"),
            ({"listeners": f"NEW://127.0.0.1:{port}", MAP: protocols}, "inter.broker.listener"),
            ({MAP: "PLAINTEXT:SSL"}, "expected PLAINTEXT: the protocol of a listener"),
        ):
            with pytest.raises(ClientError, match=told):
                alter(broker, changes)
    alter(broker, {"listeners": OWN})  # as it is
    assert Wire(broker.bootstrap).is_served()


def test_a_removed_listener_frees_its_port_for_another(broker: EmbeddedBroker) -> None:
    address = f"127.0.0.1:{free_port()}"
    protocols = {MAP: "PLAINTEXT:PLAINTEXT,OLD:PLAINTEXT,NEW:PLAINTEXT"}
    alter(broker, {"listeners": f"{OWN},OLD://{address}", **protocols})
    await_open(address)
    alter(broker, {"listeners": f"{OWN},NEW://{address}"})
    until(
        lambda: any(f"listener NEW is open at {address}" in line for line in broker.log_lines),
        "the new listener",
    )
    asyncio.run(there_and_back(address))


def test_a_node_that_starts_again_has_the_listeners_that_were_set(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    changes = {
        "listeners": f"{OWN},NEW://{address}",
        MAP: "PLAINTEXT:PLAINTEXT,NEW:PLAINTEXT",
    }
    with EmbeddedBroker(topics={"t": 1}, data=tmp_path) as broker:
        alter(broker, changes)
        await_open(address)
    with EmbeddedBroker(data=tmp_path):
        asyncio.run(there_and_back(address))


def test_other_brokers_tell_their_clients_of_a_new_listener(tmp_path: Path) -> None:
    """The controller, which is neither of the two brokers, judges no listeners by its own."""
    with Cluster(tmp_path, roles=("controller", "broker", "broker")) as cluster:
        cluster.start()
        addresses = {}
        for node_id, node in list(cluster.nodes.items())[1:]:
            addresses[node_id] = f"127.0.0.1:{free_port()}"

            async def add(at: str = node.bootstrap, node_id: int = node_id) -> None:
                own = f"PLAINTEXT://{at}"
                changes = {
                    "listeners": f"{own},NEW://{addresses[node_id]}",
                    MAP: "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,NEW:PLAINTEXT",
                }
                async with Admin(at) as admin:
                    await admin.alter_config(broker_config(node_id), changes)

            asyncio.run(add())

        async def brokers(address: str) -> dict[int, str]:
            async with Admin(address) as admin:
                found = (await admin.describe_cluster()).nodes
                return {each.id: f"{each.host}:{each.port}" for each in found}

        def knows_both(address: str) -> bool:
            return asyncio.run(brokers(address)) == addresses

        for address in addresses.values():
            await_open(address)
            until(partial(knows_both, address), "both brokers")
