"""Tests with a cluster of three nodes, each a process of its own.

pytest examples/testing
"""

from __future__ import annotations

import pytest

from headwater import blocking
from headwater.testing import HeadwaterCluster


@pytest.mark.headwater(topics={"orders": 3})
def test_orders_survive_the_loss_of_a_node(headwater_cluster: HeadwaterCluster) -> None:
    with blocking.Producer(headwater_cluster.bootstrap) as producer:
        producer.send("orders", "tea")
        leader = headwater_cluster.wait_leader("orders")
        headwater_cluster.kill(leader)  # kill -9
        producer.send("orders", "milk")
    assert len(headwater_cluster.records("orders", 2)) == 2
    headwater_cluster.start(leader)
    headwater_cluster.wait_isr("orders")  # all copies are complete again


@pytest.mark.headwater({"broker.session.timeout.ms": "3000"}, topics={"orders": 1})
def test_a_node_that_is_cut_off_is_replaced(headwater_cluster: HeadwaterCluster) -> None:
    leader = headwater_cluster.wait_leader("orders")
    headwater_cluster.cut_off(leader)
    headwater_cluster.wait_leader("orders", other_than=leader)
    headwater_cluster.send("orders", "tea")
    headwater_cluster.reconnect(leader)
    headwater_cluster.wait_isr("orders")
