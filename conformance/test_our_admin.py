"""Our own Admin and commands against Apache Kafka: what is claimed of our broker is met by it, too.

The claims are those of `tests/integration`, which HEADWATER_TEST_BOOTSTRAP aims elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.nodes import Kafka, Node

ROOT = Path(__file__).resolve().parents[1]
CLAIMS = (
    "client/test_admin_topics.py",
    "client/test_admin_groups.py",
    "client/test_admin_cluster.py",
    "test_topic_command.py",
    "test_cluster_command.py",
    "test_group_command.py",
    "test_record_commands.py",
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, jars: Path) -> Iterator[str]:
    """With an authorizer, so that there are ACLs; everyone may do everything."""
    settings = {
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    node = Node(Kafka(jars), tmp_path_factory.mktemp("kafka"), settings).start()
    yield node.bootstrap
    node.stop()
    node.remove()


@pytest.mark.parametrize("claims", CLAIMS)
def test_kafka_meets_what_is_claimed_of_us(kafka: str, claims: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", f"tests/integration/{claims}"],
        cwd=ROOT,
        env=os.environ | {"HEADWATER_TEST_BOOTSTRAP": kafka},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
