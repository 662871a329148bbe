"""Controllers that talk to each other over a simulated network: elections, commits, recovery."""

from __future__ import annotations

import asyncio

import pytest

from headwater.broker.quorum_driver import HIGH_WATERMARK_UNKNOWN
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.records.metadata_nodes import NoOpRecord
from headwater.quorum import ReplicaKey, Role, VoterSet
from headwater.quorum.model import FetchRequest
from tests.support.quorum_nodes import QuorumCluster, QuorumNode, directory


@pytest.mark.parametrize("is_static", [True, False])
def test_three_controllers_elect_one_and_share_its_log(is_static: bool) -> None:
    cluster = QuorumCluster(1, brokers=(11,), is_static=is_static)

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        images = [node.metadata.image for node in cluster.nodes.values()]
        assert all(image == images[0] for image in images)
        assert all(node.metadata.is_caught_up for node in cluster.nodes.values())
        leader = await cluster.leader()
        described = leader.metadata.describe_quorum()
        assert {status.key.id for status in described.voters} == {1, 2, 3}
        assert {status.key.id for status in described.observers} == {11}

    cluster.run(story)


@pytest.mark.parametrize("seed", range(4))
def test_the_quorum_survives_the_loss_of_its_leader(seed: int) -> None:
    cluster = QuorumCluster(seed, brokers=(11,))

    async def story() -> None:
        await cluster.start()
        for _ in range(3):
            leader = await cluster.leader()
            end = await leader.write()
            leader.kill()
            died = cluster.world.loop.time()
            other = await cluster.leader()
            assert other is not leader
            # Others see that nothing listens there, and do not wait for a timeout.
            assert cluster.world.loop.time() - died < 1.5
            assert other.metadata.applied >= end.offset
            broker = cluster.nodes[11]
            await cluster.until(lambda: broker.raft.leader_id == other.id, seconds=0.5)  # noqa: B023
            await leader.start()
            await cluster.settled()

    cluster.run(story)


def test_a_stopping_leader_hands_over_at_once() -> None:
    cluster = QuorumCluster(5)

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        leader = await cluster.leader()
        began = cluster.world.loop.time()
        await leader.stop()
        await cluster.leader()
        assert cluster.world.loop.time() - began < 0.5

    cluster.run(story)


def test_a_leader_that_was_cut_off_acknowledges_nothing_and_follows_when_it_is_back() -> None:
    cluster = QuorumCluster(7)

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        old = await cluster.leader()
        net = cluster.world.net
        others = [node for node in cluster.nodes.values() if node is not old]
        for node in others:
            net.block(old.machine.ip, node.machine.ip)
            net.block(node.machine.ip, old.machine.ip)
        lost = asyncio.ensure_future(old.write())
        await cluster.until(
            lambda: any(node.raft.role is Role.LEADER for node in others), seconds=10
        )
        new = next(node for node in others if node.raft.role is Role.LEADER)
        await cluster.until(lambda: new.controller.is_active)
        await new.write()
        with pytest.raises(ApiError) as refusal:
            await lost
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        net.blocked.clear()
        await cluster.settled()
        assert old.raft.role is Role.FOLLOWER
        assert old.metadata.image == new.metadata.image

    cluster.run(story)


@pytest.mark.parametrize("seed", range(12))
def test_who_asks_around_for_a_leader_does_not_wait_for_a_node_that_is_cut_off(seed: int) -> None:
    cluster = QuorumCluster(seed, brokers=(11,))

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        old = await cluster.leader()
        others = [node for node in cluster.nodes.values() if node is not old]
        for node in others:
            cluster.world.net.block(old.machine.ip, node.machine.ip)
            cluster.world.net.block(node.machine.ip, old.machine.ip)
        cut = cluster.world.loop.time()
        await cluster.until(lambda: any(node.controller.is_active for node in others[:2]))
        new = next(node for node in others if node.controller.is_active)
        await new.write()
        await cluster.until(lambda: all(node.raft.leader_id == new.id for node in others))
        # A fetch timeout, and an election or two.
        assert cluster.world.loop.time() - cut < 8.0

    cluster.run(story)


def test_a_node_that_is_far_behind_fetches_a_snapshot() -> None:
    cluster = QuorumCluster(
        9,
        brokers=(11,),
        settings={
            "metadata.log.max.record.bytes.between.snapshots": "600",
            "metadata.max.retention.bytes": "1000",
            "metadata.log.segment.bytes": "8388608",
            "controller.quorum.fetch.snapshot.max.bytes": "100",
        },
    )

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        away = cluster.nodes[11]
        away.kill()
        leader = await cluster.leader()
        for _ in range(60):
            await leader.write()
        await cluster.until(lambda: leader.raft.log_start > away.metadata.applied)
        await away.start()
        await cluster.settled()
        assert any("fetching the metadata snapshot" in line for line in away.lines)
        assert away.metadata.image == leader.metadata.image
        away.kill()
        await away.start()
        await cluster.settled()

    cluster.run(story)


@pytest.mark.parametrize("tells", [True, False])
def test_a_parked_fetch_is_answered_for_the_high_watermark_alone_if_it_tells_its_own(
    tells: bool,
) -> None:
    """KIP-1166: a commit reaches all who follow in one round trip."""
    cluster = QuorumCluster(21)

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        leader = await cluster.leader()

        async def fetched() -> tuple[int, int, bool]:
            raft, metadata = leader.raft, leader.metadata
            end = metadata.append([NoOpRecord()], metadata_version=30)
            before = raft.high_watermark
            assert before < end.offset, "the others have not got it yet"
            request = FetchRequest(
                ReplicaKey(9, directory(9)), end.epoch, end.offset, raft.last_epoch
            )
            waits = asyncio.ensure_future(
                leader.quorum.on_fetch(
                    request,
                    high_watermark=before if tells else HIGH_WATERMARK_UNKNOWN,
                    wait_ms=60_000,
                    bytes_max=1000,
                )
            )
            await metadata.committed(end)
            for _ in range(3):
                await asyncio.sleep(0)  # for who was woken by the commit
            is_answered = waits.done()
            if not is_answered:
                waits.cancel()
                return end.offset, -1, False
            return end.offset, waits.result().reply.high_watermark, True

        end, high_watermark, is_answered = await leader.machine.spawn(fetched())
        assert is_answered is tells
        if tells:
            assert high_watermark == end

    cluster.run(story)


def test_records_that_were_never_committed_are_replaced() -> None:
    cluster = QuorumCluster(11)

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        old = await cluster.leader()
        others = [node for node in cluster.nodes.values() if node is not old]
        for node in others:
            cluster.world.net.block(old.machine.ip, node.machine.ip)
        lost = asyncio.ensure_future(old.write())
        await asyncio.sleep(0.2)
        end = old.raft.log_end
        old.kill()
        lost.cancel()
        cluster.world.net.blocked.clear()
        new = await cluster.leader()
        assert new.raft.log_end >= old.metadata.applied
        await new.write()
        await old.start()
        await cluster.settled()
        assert old.raft.log_end == new.raft.log_end > end - 1
        assert old.raft.epoch_end(new.raft.epoch) == new.raft.epoch_end(new.raft.epoch)

    cluster.run(story)


def test_voters_are_added_and_removed() -> None:
    cluster = QuorumCluster(13, voters=(1,), others=(2, 3))

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        leader = await cluster.leader()

        async def add(node_id: int) -> None:
            node = cluster.nodes[node_id]
            await leader.machine.spawn(
                leader.changes.add(
                    ReplicaKey(node_id, node.directory_id),
                    node.metadata.own_voter().endpoints,
                    timeout_ms=5000,
                    ack_when_committed=True,
                )
            )

        await add(2)
        await add(3)
        with pytest.raises(ApiError) as refusal:
            await add(3)
        assert refusal.value.code is ErrorCode.DUPLICATE_VOTER
        await cluster.settled()
        assert all(set(node.raft.voters.voters) == {1, 2, 3} for node in cluster.nodes.values())
        with pytest.raises(ApiError) as refusal:
            await leader.machine.spawn(leader.changes.remove(ReplicaKey(2, directory(9))))
        assert refusal.value.code is ErrorCode.VOTER_NOT_FOUND
        # The leader removes itself and hands over.
        await leader.machine.spawn(leader.changes.remove(ReplicaKey(1, directory(1))))
        await cluster.until(lambda: any(node.id != 1 for node in cluster.leaders()))
        await cluster.settled()
        assert all(set(node.raft.voters.voters) == {2, 3} for node in cluster.nodes.values())
        for node in cluster.nodes.values():
            node.kill()
        for node in cluster.nodes.values():
            await node.start()
        await cluster.settled()
        assert (await cluster.leader()).id in (2, 3)

    cluster.run(story)


def test_a_voter_that_does_not_answer_holds_up_other_changes_only_for_a_request() -> None:
    cluster = QuorumCluster(25, voters=(1,), others=(2, 3))

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        leader = cluster.nodes[1]

        async def added(node_id: int) -> None:
            node = cluster.nodes[node_id]
            await leader.changes.add(
                ReplicaKey(node_id, node.directory_id),
                node.metadata.own_voter().endpoints,
                timeout_ms=60_000,
                ack_when_committed=True,
            )

        cluster.world.net.block(leader.machine.ip, cluster.nodes[2].machine.ip)
        cluster.world.net.block(cluster.nodes[2].machine.ip, leader.machine.ip)
        begun = cluster.world.loop.time()  # virtual
        with pytest.raises(ApiError) as refusal:
            await leader.machine.spawn(added(2))
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert cluster.world.loop.time() - begun < 10.0
        await leader.machine.spawn(added(3))
        assert set(leader.raft.voters.voters) == {1, 3}

    cluster.run(story)


@pytest.mark.parametrize("waits", [True, False])
def test_adding_a_voter_waits_for_the_commit_if_asked_to(waits: bool) -> None:
    cluster = QuorumCluster(23, voters=(1,), others=(2,))

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        leader, node = cluster.nodes[1], cluster.nodes[2]

        async def added() -> bool:
            await leader.changes.add(
                ReplicaKey(2, node.directory_id),
                node.metadata.own_voter().endpoints,
                timeout_ms=5000,
                ack_when_committed=waits,
            )
            assert set(leader.raft.voters.voters) == {1, 2}
            return leader.metadata.voters_are_committed

        assert await leader.machine.spawn(added()) is waits
        await cluster.until(lambda: leader.metadata.voters_are_committed)

    cluster.run(story)


def test_a_sole_voter_that_has_led_for_long_stays_the_leader_when_another_joins() -> None:
    cluster = QuorumCluster(29, voters=(1,), others=(2,))

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        leader, node = cluster.nodes[1], cluster.nodes[2]
        epoch = leader.raft.epoch
        await asyncio.sleep(60)  # virtual; as a sole voter it has heard from no other
        await leader.machine.spawn(add(leader, node))
        await cluster.settled()
        assert set(node.raft.voters.voters) == {1, 2}
        assert (leader.raft.role, leader.raft.epoch) == (Role.LEADER, epoch)

    cluster.run(story)


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("seed", range(31, 36))
def test_a_voter_is_elected_with_the_vote_of_one_that_does_not_know_yet_that_it_is_one(
    seed: int, *, is_killed: bool
) -> None:
    cluster = QuorumCluster(seed, voters=(1,), others=(2,))

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        leader, node = cluster.nodes[1], cluster.nodes[2]
        cluster.world.net.block(leader.machine.ip, node.machine.ip)
        voters = leader.raft.voters.voters | {2: node.metadata.own_voter()}
        leader.metadata.append_controls([VoterSet(voters).to_record()])
        if is_killed:
            leader.kill()
        else:
            leader.metadata.resign()
        cluster.world.net.blocked.clear()
        assert not node.raft.voters.has(ReplicaKey(2, node.directory_id))
        if is_killed:
            await leader.start()
        await cluster.settled()
        assert set(node.raft.voters.voters) == {1, 2}

    cluster.run(story)


async def add(leader: QuorumNode, node: QuorumNode) -> None:
    await leader.changes.add(
        ReplicaKey(node.id, node.directory_id),
        node.metadata.own_voter().endpoints,
        timeout_ms=5000,
        ack_when_committed=True,
    )


def test_a_voter_with_a_lost_disk_joins_again_by_itself() -> None:
    cluster = QuorumCluster(15, settings={"controller.quorum.auto.join.enable": "true"})

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        leader = await cluster.leader()
        victim = next(node for node in cluster.nodes.values() if node is not leader)
        victim.kill()
        victim.machine.lose_disk()
        victim.machine.disk.make_dirs("/d/__cluster_metadata-0")
        victim.directory_id = directory(victim.id, 1)
        await victim.start()
        key = ReplicaKey(victim.id, victim.directory_id)
        assert not victim.raft.voters.has(key)
        # Soon: until then, and above all between its removal and its return, the quorum can afford
        # to lose one voter less.
        await cluster.until(
            lambda: all(n.raft.voters.has(key) for n in cluster.nodes.values()), seconds=1.0
        )
        await cluster.settled()

    cluster.run(story)


def test_static_voters_become_dynamic() -> None:
    cluster = QuorumCluster(17, is_static=True)

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        leader = await cluster.leader()
        with pytest.raises(ApiError) as refusal:
            await leader.machine.spawn(leader.changes.remove(ReplicaKey(1, directory(1))))
        assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION
        await asyncio.sleep(5.0)  # virtual: followers tell the leader about themselves
        await leader.machine.spawn(leader.changes.make_dynamic(validate_only=False))
        await cluster.settled()
        for node in cluster.nodes.values():
            assert node.metadata.kraft_version == 1
            assert node.raft.voters.voters[2].key == ReplicaKey(2, directory(2))
        for node in cluster.nodes.values():
            node.kill()
        for node in cluster.nodes.values():
            await node.start()
        await cluster.settled()

    cluster.run(story)


def test_static_voters_tell_each_leader_anew_which_disk_they_have() -> None:
    cluster = QuorumCluster(19, is_static=True)

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        leader = await cluster.leader()
        await asyncio.sleep(5.0)  # virtual: followers tell the leader about themselves
        await leader.machine.spawn(leader.changes.make_dynamic(validate_only=True))
        # Another node leads for a while. A voter might get a new disk and tell only that leader.
        epoch = leader.raft.epoch
        while leader not in cluster.leaders() or leader.raft.epoch == epoch:
            for node in cluster.leaders():
                await node.machine.spawn(resigned(node))
            await asyncio.sleep(0.1)
        await cluster.until(lambda: leader.metadata.voters_are_committed)
        with pytest.raises(ApiError) as refusal:
            await leader.machine.spawn(leader.changes.make_dynamic(validate_only=True))
        assert refusal.value.code is ErrorCode.INVALID_UPDATE_VERSION

    cluster.run(story)


async def resigned(node: QuorumNode) -> None:
    node.metadata.resign()


def test_a_voter_whose_disk_was_full_follows_again() -> None:
    cluster = QuorumCluster(3)

    async def story() -> None:
        await cluster.start()
        leader = await cluster.leader()
        follower = next(node for node in cluster.nodes.values() if node is not leader)
        disk = follower.machine.disk
        capacity, disk.capacity_bytes = disk.capacity_bytes, disk.used_bytes
        end = await leader.write()
        await asyncio.sleep(5.0)
        assert follower.metadata.log_end < end.offset
        assert follower.metadata.failed is not None
        assert not follower.metadata.failed.done()
        disk.capacity_bytes = capacity
        await cluster.until(lambda: follower.metadata.applied >= end.offset)

    cluster.run(story)


def test_a_controller_that_cannot_write_leaves_the_lead_to_another_voter() -> None:
    cluster = QuorumCluster(4)

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        leader = await cluster.leader()
        others = [node for node in cluster.nodes.values() if node is not leader]
        disk = leader.machine.disk
        capacity, began = disk.capacity_bytes, cluster.world.loop.time()
        # Nobody asks for anything: the controller meets the full disk with a record of its own.
        disk.capacity_bytes = disk.used_bytes
        for _ in range(10_000):  # sooner than a message to another voter and back
            await asyncio.sleep(0.0002)
            if leader.raft.role is not Role.LEADER:
                break
        disk.capacity_bytes = capacity  # or the next vote could not be written, either
        await cluster.until(lambda: any(node.controller.is_active for node in others))
        assert cluster.world.loop.time() - began < 1.5, "before others miss their leader"
        assert "cannot write and resigns in favour of another voter" in "".join(leader.lines)
        assert not leader.controller.is_active
        assert not leader.running.done()
        await cluster.settled()

    cluster.run(story)


def test_a_sole_controller_that_cannot_write_waits_for_space() -> None:
    # A broker follows: for nobody no record is written.
    settings = {"leader.imbalance.check.interval.seconds": "1"}  # wakes the controller
    cluster = QuorumCluster(5, voters=(1,), brokers=(11,), settings=settings)

    async def story() -> None:
        await cluster.start()
        await cluster.settled()
        leader = await cluster.leader()
        epoch, disk = leader.raft.epoch, leader.machine.disk
        capacity, disk.capacity_bytes = disk.capacity_bytes, disk.used_bytes
        await cluster.until(lambda: "cannot write and waits for space" in "".join(leader.lines))
        with pytest.raises(ApiError) as refusal:
            await leader.write()
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        disk.capacity_bytes = capacity
        await cluster.settled()
        assert leader.raft.epoch == epoch, "nobody else could have led meanwhile"

    cluster.run(story)
