"""Voters of clusters whose controllers are nodes of their own: static, dynamic, lost, joining."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.clusters import Cluster, Member, Voters
from headwater import NewTopic
from headwater.blocking import Admin
from headwater.client.admin import FeatureUpdate, Quorum, UpgradeType
from headwater.errors import ErrorCode

KRAFT = "kraft.version"
SEPARATE = ("controller", "controller", "controller", "broker")
JOIN = {node_id: {"controller.quorum.auto.join.enable": "true"} for node_id in (1, 2, 3)}


def quorum(cluster: Cluster, is_wanted: Callable[[Quorum], bool]) -> Quorum:
    deadline = time.monotonic() + 60
    with Admin(bootstrap_controllers=cluster.bootstrap_controllers) as admin:
        while not is_wanted(found := admin.describe_quorum()):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
    return found


def directories(found: Quorum) -> dict[int, str | None]:
    return {voter.node_id: voter.directory_id for voter in found.voters}


def update(
    cluster: Cluster, updates: dict[str, int | FeatureUpdate], *, validate_only: bool = False
) -> ErrorCode | None:
    """Returns how the update of kraft.version was refused, if it was."""
    with Admin(cluster.bootstrap) as admin:
        refusal = admin.update_features(updates, validate_only=validate_only)[KRAFT]
    return None if refusal is None else refusal.code


def finalized(cluster: Cluster, feature: str) -> int:
    with Admin(cluster.bootstrap) as admin:
        found = admin.describe_features().finalized.get(feature)
    return 0 if found is None else found.most


def directory_of(member: Member) -> str:
    lines = (member.node.log_folder / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)["directory.id"]


def lose_disk(cluster: Cluster, node_id: int) -> str:
    """Kills a node and takes its directory away; returns the id of that directory."""
    member = cluster.members[node_id]
    before = directory_of(member)
    cluster.kill(node_id)
    shutil.rmtree(member.node.log_folder)
    return before


@pytest.mark.timeout(600)  # three nodes start several times
def test_static_voters_become_dynamic_when_that_is_asked_for_by_name(tmp_path: Path) -> None:
    refused = ErrorCode.INVALID_UPDATE_VERSION
    with Cluster(
        tmp_path, voters=Voters.STATIC, roles=SEPARATE, release="4.0", own_settings=JOIN
    ).start() as cluster:
        assert finalized(cluster, KRAFT) == 0
        with Admin(cluster.bootstrap) as admin:
            assert admin.update_features({"metadata.version": 30}) == {"metadata.version": None}
        assert finalized(cluster, KRAFT) == 0, "only when it is named"

        deadline = time.monotonic() + 60
        while update(cluster, {KRAFT: 1}, validate_only=True) is not None:
            assert time.monotonic() < deadline, "voters tell their directories after a while"
        down = FeatureUpdate(1, UpgradeType.SAFE_DOWNGRADE)
        assert update(cluster, {KRAFT: down}) is refused
        # With something impossible beside it nothing changes at all.
        assert update(cluster, {KRAFT: 1, "group.version": 99}) is refused
        assert finalized(cluster, KRAFT) == 0
        assert set(directories(quorum(cluster, lambda _: True)).values()) <= {None}

        assert update(cluster, {KRAFT: 1}) is None
        expected: dict[int, str | None] = {
            each.node_id: directory_of(each) for each in cluster.controllers
        }
        quorum(cluster, lambda found: directories(found) == expected)
        assert finalized(cluster, KRAFT) == 1
        assert update(cluster, {KRAFT: FeatureUpdate(0, UpgradeType.SAFE_DOWNGRADE)}) is refused

        # From now on the settings only say where to ask.
        cluster.voters = Voters.ADDED
        cluster.kill()
        cluster.restart()
        quorum(cluster, lambda found: directories(found) == expected)

        # A voter that lost its disk joins again under its new directory.
        lost = lose_disk(cluster, 2)
        cluster.launch(2)
        found = quorum(cluster, lambda found: directories(found).get(2) not in (None, lost))
        assert directories(found)[2] == directory_of(cluster.members[2])
        assert set(directories(found)) == {1, 2, 3}
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("after", 1, 1)])


def test_an_empty_static_voter_does_not_win_against_the_log(tmp_path: Path) -> None:
    with Cluster(tmp_path, voters=Voters.STATIC, roles=SEPARATE).start() as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("before", 1, 1)])
        leader = quorum(cluster, lambda _: True).leader_id
        empty, full = (each.node_id for each in cluster.controllers if each.node_id != leader)
        lose_disk(cluster, empty)
        cluster.kill(leader)
        cluster.launch(empty)
        # Only the voter that has the log and the empty one are left: the first must lead.
        quorum(cluster, lambda found: found.leader_id == full)
        with Admin(cluster.bootstrap) as admin:
            assert [each.name for each in admin.list_topics()] == ["before"]
        cluster.restart(leader)
        quorum(
            cluster, lambda found: all(each.last_caught_up_ms is not None for each in found.voters)
        )
