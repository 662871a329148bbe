"""Looks into the nodes of a simulated cluster: what must hold there, whatever happens.

After every change of the quorum's leader, every commit of the metadata, and every fraction of a
second, beside what `quorum_watch` looks at:

- an epoch of a partition has one leader, which has everything that was committed;
- what one replica holds for committed (below its high watermark) every replica holds, byte by byte;
- no replica is cut below what was committed;
- nothing is committed while fewer replicas are in sync than required.

It also counts losses: power cuts and lost disks. A partition may lose records when as many of its
replicas as it needs to acknowledge have ended uncleanly, and one of them has lost data: the
controller cannot tell which one (KIP-966). It is excused from then on, never before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from headwater.broker.metadata_log import MetadataLog
from headwater.broker.partition import Partition
from headwater.metadata import Delta, Image
from headwater.model import TopicPartition
from headwater.quorum import Role
from headwater.replication.leader import LeaderState
from headwater.testing.sim.checker import Action
from headwater.testing.sim.fleet import Fleet, Member
from headwater.testing.sim.fleet_clients import Recorder
from headwater.testing.sim.loop import Life
from headwater.testing.sim.quorum_watch import Committed, QuorumWatch, Seen, compare
from headwater.testing.sim.violation import Violation

GROUP = "group"
OFFSETS_TOPIC = "__consumer_offsets"
_TICK_SECONDS = 0.1

PartitionKey = tuple[bytes, int]


@dataclass(slots=True)
class _View:
    """Observations of a node in its present life."""

    life: Life
    metadata: MetadataLog
    log: Seen = field(default_factory=Seen)
    replicas: dict[PartitionKey, Seen] = field(default_factory=dict)
    has_ended: bool = False


@dataclass(slots=True)
class _Loss:
    is_lossy: bool  # records may be gone
    has_left: bool  # the ISR


class FleetWatch:
    def __init__(self, fleet: Fleet, recorder: Recorder) -> None:
        self._fleet = fleet
        self._recorder = recorder
        self.violation: Violation | None = None
        self.image: Image | None = None  # the newest that was committed
        self._image_at = -1
        self._views: dict[int, _View] = {}
        self.quorum = QuorumWatch(fleet.world, fleet.fail)
        self._partition_leaders: dict[tuple[PartitionKey, int], int] = {}
        self._partitions: dict[PartitionKey, Committed] = {}
        self._leader_epochs: dict[PartitionKey, int] = {}
        self._excused: set[PartitionKey] = set()
        self.may_lose: set[TopicPartition] = set()  # the same by name
        # By partition, the replicas that have ended uncleanly since they were last in sync.
        self._losses: dict[PartitionKey, dict[int, _Loss]] = {}
        self._ticker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._ticker = asyncio.ensure_future(self._tick())

    async def _tick(self) -> None:
        while self.violation is None:
            self._guard(self._look_at_all)
            await asyncio.sleep(_TICK_SECONDS)

    def _guard(self, check: Callable[[], None]) -> None:
        """Callers are inside a node, which would take a violation for its own failure."""
        if self.violation is not None:
            return
        try:
            check()
        except Violation as violation:
            self.violation = violation

    def _expect(self, holds: bool, what: str) -> None:
        if not holds:
            raise self._fleet.fail(what)

    def _look_at_all(self) -> None:
        for member in self._fleet.members.values():
            last = self._views.get(member.id)
            if last is not None and not last.life.alive and not last.has_ended:
                last.has_ended = True
                self._on_end(member, last)
            view = self._view(member)
            if view is not None:
                self._look_at_quorum(member, view)
                with member.machine.disk.without_faults():
                    self._look_at_partitions(member, view)

    def _view(self, member: Member) -> _View | None:
        life, node = member.machine.life, member.node
        if life is None or node is None or member.has_ended:
            return None
        view = self._views.get(member.id)
        if view is not None and view.life is life:
            # What a node has in memory whose disk has failed counts no more: it is stopping, and
            # has told nobody.
            return None if view.metadata._failure is not None else view
        metadata: MetadataLog | None = getattr(node, "_metadata", None)
        if metadata is None or not hasattr(metadata, "raft"):
            return None  # not opened yet
        view = self._views[member.id] = _View(life, metadata)
        metadata.on_leader_changed(lambda: self._guard(lambda: self._on_leader(member, view)))
        metadata.subscribe(
            lambda image, delta: self._guard(lambda: self._on_commit(member, view, image, delta))
        )
        return view

    def _on_leader(self, member: Member, view: _View) -> None:
        if self._view(member) is view:
            self._look_at_quorum(member, view)

    def _look_at_quorum(self, member: Member, view: _View) -> None:
        with member.machine.disk.without_faults():
            self.quorum.look(member.id, view.metadata, view.log)

    def _on_commit(self, member: Member, view: _View, image: Image, delta: Delta) -> None:
        if self._view(member) is not view:
            return
        self._look_at_quorum(member, view)
        if view.metadata.applied > self._image_at:
            self._image_at = view.metadata.applied
            self.image = image
            self._follow(image, delta)

    # Partitions

    def _look_at_partitions(self, member: Member, view: _View) -> None:
        partitions = getattr(member.node, "_partitions", None)
        if partitions is None:
            return
        for partition in partitions.all():
            self._look_at_replica(member, view, partition)

    def _look_at_replica(self, member: Member, view: _View, partition: Partition) -> None:
        key = (partition.topic_id, partition.tp.partition)
        if key in self._excused:
            return
        seen = view.replicas.get(key)
        if seen is None:
            seen = view.replicas[key] = Seen()
        committed = self._partitions.setdefault(key, Committed())
        log, leader = partition.log, partition.leader
        what = f"{partition.tp} on node {member.id}"
        # A node that starts again holds the roles of its last metadata until it is registered, and
        # serves nobody.
        if leader is not None and member.is_serving and leader.epoch != seen.leader_epoch:
            other = self._partition_leaders.setdefault((key, leader.epoch), member.id)
            self._expect(
                other == member.id,
                f"nodes {other} and {member.id} both lead epoch {leader.epoch} of {partition.tp}",
            )
            self._expect(
                log.end >= committed.end,
                f"{what} leads epoch {leader.epoch} with a log up to {log.end}, {committed.end} is "
                "committed",
            )
            seen.leader_epoch = leader.epoch
        leads = -1 if leader is None else leader.epoch
        if leads != seen.leads:
            if seen.leads >= 0:
                self._tell(Action.DEPOSED, partition.tp, member.id, seen.leads)
            if leads >= 0:
                self._tell(Action.LEADER, partition.tp, member.id, leads)
            seen.leads = leads
        high_watermark = partition.high_watermark
        self._expect(
            high_watermark <= log.end, f"{what}: high watermark {high_watermark} of {log.end}"
        )
        self._expect(
            log.end >= seen.high_watermark,
            f"{what} was cut to {log.end}, {seen.high_watermark} is committed",
        )
        seen.high_watermark = max(seen.high_watermark, high_watermark)
        self._look_at_minimum(what, leader, seen)
        differs = compare(log, seen, high_watermark, committed)
        self._expect(differs is None, f"{what} {differs}")

    def _look_at_minimum(self, what: str, leader: LeaderState | None, seen: Seen) -> None:
        """While fewer replicas are in sync than min.insync.replicas, nothing is committed
        (KIP-966)."""
        if leader is None or len(leader.isr) >= min(leader.min_isr, len(leader.replicas)):
            seen.too_few = None
            return
        now = (leader.epoch, leader.partition_epoch, leader.high_watermark)
        if seen.too_few is not None and seen.too_few[:2] == now[:2]:
            self._expect(
                seen.too_few == now,
                f"{what} committed up to {now[2]} with only {list(leader.isr)} in sync, of "
                f"{leader.min_isr} that are required",
            )
        seen.too_few = now

    def _on_end(self, member: Member, view: _View) -> None:
        """Notes that the node no longer leads what it led, or was to lead, when it crashed."""
        for (topic_id, number), seen in view.replicas.items():
            topic = None if self.image is None else self.image.topics_by_id.get(topic_id)
            if topic is not None:
                epoch = self._leader_epochs.get((topic_id, number), -1)
                self._tell(Action.DEPOSED, TopicPartition(topic.name, number), member.id, epoch)
            seen.leads = -1

    def _tell(self, action: Action, tp: TopicPartition, node_id: int, epoch: int) -> None:
        """Tells the checker who leads. A leader that has not heard of its successor may acknowledge
        with acks=1 what nobody else has, and answers with the end of its own log."""
        if tp.topic in self._recorder.topics:
            self._recorder.happened("cluster", action, tp, value=f"node {node_id}", offset=epoch)

    def _follow(self, image: Image, delta: Delta) -> None:
        """Tells the checker of new leaders, and takes note of replicas that leave and join."""
        for topic_id, number in sorted(delta.partitions):
            topic = image.topics_by_id.get(topic_id)
            state = None if topic is None else image.partition(topic.name, number)
            if topic is None or state is None:
                continue
            key = (topic_id, number)
            if state.leader_epoch != self._leader_epochs.get(key):
                self._leader_epochs[key] = state.leader_epoch
                tp = TopicPartition(topic.name, number)
                self._tell(Action.LEADER, tp, state.leader, state.leader_epoch)
                self._fleet.world.note(
                    f"{topic.name}-{number}: leader {state.leader} in epoch {state.leader_epoch}, "
                    f"isr {list(state.isr)}"
                )
            losses = self._losses.get(key, {})
            for node_id in list(losses):
                if node_id not in state.isr:
                    losses[node_id].has_left = True
                elif losses[node_id].has_left:
                    del losses[node_id]  # it has caught up with those that lost nothing

    # Losses

    def power_cut(self, member: Member) -> None:
        """Notes that unsynced records of the node may be gone. flush.messages=1 makes no
        difference: readers see records before they are synced."""
        self._lose(member, is_lossy=True)

    def unclean_end(self, member: Member) -> None:
        """Nothing is lost, but the controller has to take the node for one that has lost records:
        it leaves ISR and ELR when it registers again."""
        self._lose(member, is_lossy=False)

    def disk_lost(self, member: Member) -> None:
        self.quorum.forget(member.id)
        self._lose(member, is_lossy=True)

    def _lose(self, member: Member, *, is_lossy: bool) -> None:
        if self.image is None:
            return
        for topic, number, state in self.image.partitions():
            if member.id not in state.replicas:
                continue
            known = self._recorder.topics.get(topic.name)
            key = (topic.id, number)
            losses = self._losses.setdefault(key, {})
            before = losses.get(member.id)
            is_lossy_now = is_lossy or (before is not None and before.is_lossy)
            losses[member.id] = _Loss(is_lossy_now, has_left=member.id not in state.isr)
            least = known.min_isr if known is not None else self._min_isr(topic.name)
            is_lost = len(losses) >= least and any(loss.is_lossy for loss in losses.values())
            if is_lost and key not in self._excused:
                self._excuse(topic.name, number, key)

    def _min_isr(self, topic: str) -> int:
        return int(next(iter(self._fleet.members.values())).config.min_insync_replicas)

    def _excuse(self, topic: str, number: int, key: PartitionKey) -> None:
        self._excused.add(key)
        self.may_lose.add(TopicPartition(topic, number))
        self._fleet.world.note(f"{topic}-{number} may lose records")
        self._fleet.world.happened("a partition that may lose records")
        if topic in self._recorder.topics:
            tp = TopicPartition(topic, number)
            self._recorder.happened("cluster", Action.MAY_LOSE, tp)
        elif topic == OFFSETS_TOPIC:
            self._recorder.checker.excused_groups.add(GROUP)

    # For the story

    def somebody_important(self, random: Random) -> Member | None:
        """Returns the active controller, or the leader of a partition."""
        found = [
            self._fleet.members[node_id]
            for node_id, view in self._views.items()
            if view.life.alive and view.metadata.raft.role is Role.LEADER
        ]
        if self.image is not None:
            leaders = {state.leader for _, _, state in self.image.partitions()}
            found += [m for m in self._fleet.members.values() if m.id in leaders]
        return random.choice(found) if found else None

    def release(self) -> None:
        """Lets go of the nodes."""
        self._views.clear()
        self._ticker = None

    def check_all(self) -> None:
        """Checks all that costs too much to be checked all the time."""
        if self._ticker is not None:
            self._ticker.cancel()
        if self.violation is not None:
            raise self.violation
        self._look_at_all()
        for member in self._fleet.members.values():
            view = self._view(member)
            if view is not None:
                self.quorum.check_replay(member.id, view.metadata)
