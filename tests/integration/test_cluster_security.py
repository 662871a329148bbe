"""Three nodes that talk to each other over TLS: logins, rotation, and who is not let in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.clusters import Cluster, Member
from harness.wire import until
from headwater import Admin, Consumer, NewTopic, Producer
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
