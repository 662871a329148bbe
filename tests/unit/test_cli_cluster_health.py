"""The health of a cluster: the report made of its answers."""

from __future__ import annotations

from headwater.cli.cluster_health import Replicated, View, problems_of, sentence
from headwater.client.admin import LogDir, Partition, Quorum, QuorumReplica
from headwater.client.errors import BrokersUnavailable, ClientError

NOW_MS = 1_700_000_000_000


def partition(leader: int | None, in_sync: tuple[int, ...], min_isr: int = 1) -> Replicated:
    return Replicated("orders", Partition(0, leader, 5, (1, 2, 3), in_sync), min_isr)


def quorum(*silent: int) -> Quorum:
    voters = tuple(
        QuorumReplica(node, 100, last_fetch_ms=NOW_MS - (60_000 if node in silent else 0))
        for node in (1, 2, 3)
    )
    return Quorum(1, 4, 100, voters, ())


def told(view: View) -> list[str]:
    return [each.what for each in problems_of(view)]


ALL = (1, 2, 3)


def test_a_cluster_that_is_well_has_no_problem() -> None:
    view = View(ALL, quorum=quorum(), partitions=(partition(1, ALL),))
    assert problems_of(view) == ()
    assert sentence((), "all is well") == "all is well"


def test_a_node_that_is_down_is_one_problem_with_what_follows_from_it() -> None:
    view = View(
        (1, 2),
        (3,),
        quorum(3),
        partitions=(partition(1, (1, 2)), partition(1, (1, 2), min_isr=3), partition(None, ())),
    )
    (problem,) = problems_of(view)
    assert problem.what == (
        "node 3 is down, so 1 partition has no leader and 1 partition refuses acks=all and "
        "1 partition has a replica less; no other voter of the quorum may fail"
    )
    assert problem.action.startswith("start node 3, or read its log if it runs; if it is lost")
    assert sentence((problem,), "") == f"{problem.what}: {problem.action}"


def test_a_node_that_is_not_registered_counts_as_down() -> None:
    (what,) = told(View((1, 2), partitions=(partition(1, (1, 2)),)))
    assert what.startswith("node 3 is down, so 1 partition has a replica less")


def test_a_replica_that_lags_on_a_live_node_is_waited_for() -> None:
    (problem,) = problems_of(View(ALL, partitions=(partition(1, (1, 2)),)))
    assert problem.what == "1 partition has replicas on node 3 that are not in sync"
    assert problem.action.startswith("wait until node 3 has caught up")


def test_fewer_replicas_than_the_minimum_refuse_nothing_while_all_are_in_sync() -> None:
    alone = Replicated("solo", Partition(0, 1, 5, (1,), (1,)), min_isr=2)
    assert problems_of(View((1,), partitions=(alone,))) == ()


def test_a_voter_that_does_not_follow_is_named_with_what_is_left() -> None:
    (problem,) = problems_of(View(ALL, quorum=quorum(2)))
    assert problem.what == (
        "node 2 does not follow the leader of the quorum, and no other voter of the quorum may fail"
    )


def test_a_voter_that_lost_its_directory_is_replaced_by_the_commands_that_are_named() -> None:
    def replica(node: int, directory: str, ago_ms: int) -> QuorumReplica:
        return QuorumReplica(node, 100, directory, NOW_MS - ago_ms)

    voters = (replica(1, "one", 0), replica(2, "old", 3000), replica(3, "three", 0))
    where = {1: {"CONTROLLER": "one:9093"}}
    empty = Quorum(1, 4, 100, voters, (replica(2, "new", 0),), where)
    (problem,) = problems_of(View(ALL, quorum=empty))
    assert problem.what == (
        "node 2 follows the quorum with a new directory and does not vote, and no other voter of "
        "the quorum may fail"
    )
    assert "`headwater cluster quorum remove 2 --directory old --yes`" in problem.action
    added = "`headwater cluster quorum add 2 --directory new --bootstrap-controller one:9093`"
    assert added in problem.action
    long_ago = Quorum(
        1, 4, 100, (voters[0], replica(2, "old", 60_000), voters[2]), (replica(2, "new", 0),)
    )
    assert told(View(ALL, quorum=long_ago)) == [problem.what]
    replaced = (voters[0], replica(2, "new", 0), voters[2])
    again = Quorum(1, 4, 100, replaced, (replica(2, "old", 3000),))
    assert problems_of(View(ALL, quorum=again)) == ()


def test_a_lost_quorum_comes_first_and_names_whom_to_start() -> None:
    down: ClientError = BrokersUnavailable("node 2: connection refused")
    dirs: dict[int, dict[str, LogDir] | ClientError] = {1: {}, 2: down}
    first, *others = problems_of(View((1, 2), (3,), has_leader=False, dirs=dirs))
    assert first.what.startswith("no controller leads the cluster")
    assert first.action == "start nodes 2 and 3 until more than half of the voters run"
    assert [each.what for each in others] == [
        "node 3 is down",
        "node 2 does not answer (node 2: connection refused)",
    ]
    assert sentence((first, *others), "").endswith("(2 more problems below)")


def test_no_leader_without_a_node_down_points_at_the_partitions() -> None:
    (what,) = told(View(ALL, partitions=(partition(None, ()),)))
    assert what == "1 partition has no leader although all nodes of its replicas are up"
