"""Three nodes that talk to each other over TLS: logins, rotation, and who is not let in."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.clusters import Cluster, Member
from harness.wire import until
from headwater import Admin, AuthorizationError, Consumer, NewTopic, Producer
from headwater.client.admin import ConfigResource, ResourceType, Topic
from headwater.client.admin.configs import broker_config
from headwater.security.dev_certificates import Authority, issue, new_authority

PASSWORD = "between nodes"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecureCluster(Cluster):
    """Brokers log in to each other with SCRAM, nodes to controllers with PLAIN, all over TLS."""

    def format_options(self, member: Member) -> list[str]:
        added = f"SCRAM-SHA-512=[name=node,password={PASSWORD}]"
        return [*super().format_options(member), "--add-scram", added]


def write_certificates(folder: Path, authority: Authority) -> None:
    now = datetime.now(UTC)
    issued = issue(authority, "node", ("localhost", "127.0.0.1"), now=now, days=1)
    new = folder / "server.new"
    new.write_text(issued.pem)
    new.replace(folder / "server.pem")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    authority = new_authority("tests", now=datetime.now(UTC), days=1)
    (tmp_path / "ca.pem").write_text(authority.certificate)
    write_certificates(tmp_path, authority)
    plain = f'username="node" password="{PASSWORD}" user_node="{PASSWORD}" user_alice="wonder"'
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": f"{PLAIN} required {plain};",
        "listener.name.plaintext.plain.sasl.jaas.config": f"{PLAIN} required {plain};",
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": (
            f'{SCRAM} required username="node" password="{PASSWORD}";'
        ),
        # Logins between the nodes are renewed all the time.
        "connections.max.reauth.ms": "3000",
    }
    with SecureCluster(tmp_path, settings=settings) as started:
        started.start()
        yield started


def as_alice(folder: Path) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": str(folder / "ca.pem"),
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": "wonder",
    }


def output(cluster: Cluster) -> str:
    return "".join(node.output.read_text(errors="replace") for node in cluster.nodes.values())


def test_nodes_log_in_to_each_other_and_go_on_with_new_certificates(
    cluster: Cluster, tmp_path: Path
) -> None:
    settings = as_alice(tmp_path)

    async def there_and_back(topic: str) -> None:
        async with Admin(cluster.bootstrap, **settings) as admin:
            await admin.create_topics([NewTopic(topic, partitions=3, replication=3)])
        async with Producer(cluster.bootstrap, acks="all", **settings) as producer:
            for number in range(100):
                producer.submit(topic, value=b"%d" % number)
            await producer.flush()
        async with Consumer(
            cluster.bootstrap, topics=[topic], group=None, auto_offset_reset="earliest", **settings
        ) as consumer:
            seen = set()
            async for record in consumer:
                seen.add(record.value)
                if len(seen) == 100:
                    return

    asyncio.run(there_and_back("before"))
    # Another authority: nodes must take both the new certificates and the new trust.
    authority = new_authority("next", now=datetime.now(UTC), days=1)
    old = (tmp_path / "ca.pem").read_text()
    (tmp_path / "ca.pem").write_text(old + authority.certificate)
    until(lambda: output(cluster).count("are in use") >= 3, "the new trust", 30)
    write_certificates(tmp_path, authority)
    until(lambda: output(cluster).count("new certificate of") >= 3, "the new certificates", 30)
    cluster.kill(1)
    cluster.restart(1)
    asyncio.run(there_and_back("after"))
    printed = output(cluster)
    assert PASSWORD not in printed
    assert "wonder" not in printed
    assert "PRIVATE" not in printed
    assert "failed: listener" not in printed  # nobody was refused


# Certificates between controllers, SCRAM between brokers, and rules

SUPER_USERS = "User:node;User:next-node;User:admin"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Cluster]:
    authority = new_authority("tests", now=datetime.now(UTC), days=1)
    (tmp_path / "ca.pem").write_text(authority.certificate)
    write_certificates(tmp_path, authority)
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "listener.name.controller.ssl.client.auth": "required",
        "listener.name.controller.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            f'{PLAIN} required user_admin="root" user_alice="wonder";'
        ),
        JAAS: login_of("node"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": SUPER_USERS,
        "connections.max.reauth.ms": "3000",
    }
    with SecureCluster(tmp_path, settings=settings) as started:
        started.start()
        yield started


JAAS = "listener.name.plaintext.scram-sha-512.sasl.jaas.config"


def login_of(user: str) -> str:
    return f'{SCRAM} required username="{user}" password="{PASSWORD}";'


def as_admin(folder: Path) -> dict[str, Any]:
    return as_alice(folder) | {"sasl_username": "admin", "sasl_password": "root"}


def test_a_controller_goes_by_the_client_in_an_envelope_and_users_of_nodes_rotate(
    guarded: Cluster, tmp_path: Path
) -> None:
    alice, admin = as_alice(tmp_path), as_admin(tmp_path)

    async def may_not(node_id: int) -> None:
        """Over each broker: two of three pass the request on, as super users themselves."""
        async with Admin(guarded.nodes[node_id].bootstrap, **alice) as client:
            with pytest.raises(AuthorizationError):
                await client.set_scram("mallory", "x")
            with suppress(AuthorizationError):
                await client.create_topics([NewTopic("hers", partitions=1, replication=1)])

    async def run() -> None:
        async with Admin(guarded.bootstrap, **admin) as client:
            await client.create_topics([NewTopic("t", partitions=6, replication=3)])
            for node_id in guarded.nodes:
                await may_not(node_id)
            assert {each.name for each in await client.list_topics()} == {"t"}
            assert set(await client.describe_scram()) == {"node"}
            await rotate(client)

    async def rotate(client: Admin) -> None:
        is_done = asyncio.Event()

        async def write() -> int:
            """Somebody writes all the time, and each record waits for all replicas."""
            async with Producer(guarded.bootstrap, acks="all", **admin) as producer:
                count = 0
                while not is_done.is_set():
                    await producer.send("t", value=b"%d" % count)
                    count += 1
                return count

        writing = asyncio.ensure_future(write())
        await client.set_scram("next-node", PASSWORD, mechanism="SCRAM-SHA-512")
        for node_id in guarded.nodes:
            logger = ConfigResource(ResourceType.BROKER_LOGGER, str(node_id))
            await client.alter_config(logger, {"headwater.authentication": "DEBUG"})
            await client.alter_config(broker_config(node_id), {JAAS: login_of("next-node")})
        await until_logged_in("next-node")
        await client.delete_scram({"node": "SCRAM-SHA-512"})
        await until_logged_in("next-node")  # again: nobody needs the old user any more
        is_done.set()
        assert await writing > 0
        topic = (await client.describe_topics(["t"]))["t"]
        assert isinstance(topic, Topic)
        assert all(len(each.in_sync) == 3 for each in topic.partitions)

    async def until_logged_in(user: str) -> None:
        """Waits until each broker has let in another one by this name three times on one
        connection: meanwhile all other logins had to be renewed, too."""
        said = re.compile(rf"(\S+) authenticated on PLAINTEXT as User:{user} with SCRAM")
        logs = [node.output for node in guarded.nodes.values()]
        begins = [len(log.read_bytes()) for log in logs]

        def is_renewed(log: Path, begin: int) -> bool:
            logins = Counter(said.findall(log.read_bytes()[begin:].decode(errors="replace")))
            return max(logins.values(), default=0) >= 3

        await asyncio.to_thread(
            until, lambda: all(map(is_renewed, logs, begins)), f"logins of {user}", 60
        )

    asyncio.run(run())
    printed = output(guarded)
    assert "mechanism=SCRAM-SHA-512 user=" not in printed, "no node was refused"
    assert "principal=User:alice operation=ALTER resource=CLUSTER:kafka-cluster" in printed
    assert PASSWORD not in printed
