"""A short storm over a group: members join, leave, are killed and paused."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from harness.group_storm import CLASSIC, MODERN, STORM_SETTINGS, Storm
from tests.support.processes import NodeProcess

PARTITIONS = 6


@pytest.mark.parametrize("clients", [CLASSIC, MODERN], ids=["classic", "consumer"])
def test_a_group_comes_through_a_storm(tmp_path: Path, clients: tuple[str, ...]) -> None:
    settings = {**STORM_SETTINGS, "group.initial.rebalance.delay.ms": "0"}
    with NodeProcess(tmp_path, settings=settings) as node:
        admin = AdminClient({"bootstrap.servers": node.address, "log_level": 0})
        admin.create_topics([NewTopic("work", PARTITIONS, 1)])["work"].result(20)
        where = (node.address, "work", PARTITIONS)
        outcome = Storm(*where, clients, seed=4, waves=1, gusts=20).run()
        assert outcome.wrong == []
        assert outcome.watch.lies, "the watcher saw too little to say anything"
        assert node.complaints() == []
