"""Changes of a partition: its leader, its in-sync replicas, its reassignment.

Every change goes through `change`: a broker is fenced or unfenced, a leader alters the in-sync set,
an election is requested, a reassignment completes. It takes the current and the wanted state and
returns one record, or None if nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import NamedTuple

from headwater.metadata.model import (
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    PartitionState,
)
from headwater.protocol.records.metadata_topics import PartitionChangeRecord


class Election(Enum):
    PREFERRED = "preferred"  # move to the first replica if it can lead
    ONLINE = "online"  # keep the leader while it can lead; lose no records
    UNCLEAN = "unclean"  # any live replica rather than none, even if records are lost


class Rules(NamedTuple):
    """The settings of the partition's topic and cluster that matter here."""

    is_acceptable_leader: Callable[[int], bool]
    min_isr: int
    elr_enabled: bool
    directories: Callable[[int], bytes] = lambda _: DIRECTORY_UNASSIGNED  # of a new replica
    has_directories: bool = True  # whether the level of metadata.version knows them
    epoch_bump_on_shrink: bool = False  # before metadata.version 3.6 brokers relied on it


def change(
    topic_id: bytes,
    index: int,
    now: PartitionState,
    rules: Rules,
    *,
    election: Election = Election.ONLINE,
    isr: Collection[int] | None = None,
    recovery_state: int | None = None,
    replicas: Collection[int] | None = None,
    removing: Collection[int] | None = None,
    adding: Collection[int] | None = None,
    directories: dict[int, bytes] | None = None,
    lost: Collection[int] = (),
) -> PartitionChangeRecord | None:
    """Returns the record for a change, or None. `isr`, `replicas` and so on are the wanted state;
    None keeps the current one. `lost` are replicas that were restarted without a clean shutdown and
    may lack their last records."""
    builder = _Change(topic_id, index, now, rules, election)
    builder.isr = list(now.isr if isr is None else isr)
    builder.replicas = list(now.replicas if replicas is None else replicas)
    builder.removing = list(now.removing if removing is None else removing)
    builder.adding = list(now.adding if adding is None else adding)
    builder.recovery_state = now.recovery_state if recovery_state is None else recovery_state
    known = dict(zip(now.replicas, now.directories, strict=True))
    builder.directories = known | (directories or {})
    builder.lost = frozenset(lost)
    return builder.build()


class _Change:
    def __init__(
        self, topic_id: bytes, index: int, now: PartitionState, rules: Rules, election: Election
    ) -> None:
        self.now = now
        self.rules = rules
        self.election = election
        self.record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
        self._nothing = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
        self.isr: list[int] = []
        self.replicas: list[int] = []
        self.removing: list[int] = []
        self.adding: list[int] = []
        self.elr = list(now.elr)
        self.recovery_state = RECOVERED
        self.directories: dict[int, bytes] = {}
        self.lost: frozenset[int] = frozenset()

    def build(self) -> PartitionChangeRecord | None:
        self._complete_reassignment()
        self._find_eligible()
        unclean = self._elect()
        self._bump_epoch_if_replicas_left()
        self._note_eligible(unclean)
        if not unclean and self.isr != list(self.now.isr) and (self.isr or self.rules.elr_enabled):
            self.record.isr = self.isr
        self._bump_epoch_if_isr_shrank()
        self._note_last_leader()
        self._note_assignment()
        if self.recovery_state != self.now.recovery_state:
            self.record.leader_recovery_state = self.recovery_state
        return None if self.record == self._nothing else self.record

    def _complete_reassignment(self) -> None:
        """Completes a reassignment once all target replicas are in sync."""
        if not self.removing and not self.adding:
            return
        isr = [replica for replica in self.isr if replica not in self.removing]
        replicas = [replica for replica in self.replicas if replica not in self.removing]
        if isr and replicas and set(isr) >= set(replicas):
            self.isr, self.replicas, self.removing, self.adding = isr, replicas, [], []

    def _find_eligible(self) -> None:
        """Updates the eligible leaders (KIP-966): below min.insync.replicas, replicas that leave
        the in-sync set have everything committed and may lead without loss."""
        if not self.rules.elr_enabled:
            return
        if len(self.isr) >= self.rules.min_isr:
            self.elr = []
            return
        candidates = sorted({*self.elr, *self.now.isr})
        self.elr = [r for r in candidates if r not in self.isr and r not in self.lost]

    def _elect(self) -> bool:
        """Sets the leader; returns whether the election was unclean."""
        leader, unclean = self._find_leader()
        if leader == self.now.leader:
            return False
        if leader in self.elr:
            self.isr = [leader]
            self.elr = [replica for replica in self.elr if replica != leader]
        self.record.leader = leader
        if unclean:
            self.record.isr = [leader]
            if self.now.recovery_state != RECOVERING:
                self.record.leader_recovery_state = RECOVERING
                self.recovery_state = RECOVERING
        return unclean

    def _find_leader(self) -> tuple[int, bool]:
        order = list(self.replicas)
        if self.election is Election.PREFERRED:
            order[1:1] = [self.now.leader]
        else:
            order.insert(0, self.now.leader)
        for replica in order:
            if self._may_lead(replica):
                return replica, False
        if self._may_elect_last_leader():
            return self.now.last_known_elr[0], True
        if self.election is Election.UNCLEAN:
            for replica in self.replicas:
                if self.rules.is_acceptable_leader(replica):
                    return replica, True
        return NO_LEADER, False

    def _may_lead(self, replica: int) -> bool:
        in_sync = replica in self.isr or (not self.isr and replica in self.elr)
        return in_sync and self.rules.is_acceptable_leader(replica)

    def _may_elect_last_leader(self) -> bool:
        """Returns whether the last known leader may lead, because no replica is known to have all
        committed records."""
        return (
            self.rules.elr_enabled
            and not self.isr
            and not self.elr
            and len(self.now.last_known_elr) == 1
            and self.rules.is_acceptable_leader(self.now.last_known_elr[0])
        )

    def _bump_epoch_if_replicas_left(self) -> None:
        if self.record.leader == NO_LEADER_CHANGE and not set(self.replicas) >= set(
            self.now.replicas
        ):
            self.record.leader = self.now.leader

    def _bump_epoch_if_isr_shrank(self) -> None:
        if (
            self.rules.epoch_bump_on_shrink
            and self.record.leader == NO_LEADER_CHANGE
            and self.record.isr is not None
            and not set(self.record.isr) >= set(self.now.isr)
        ):
            self.record.leader = self.now.leader

    def _note_eligible(self, unclean: bool) -> None:
        if unclean or not self.rules.elr_enabled:
            self.elr = []
        if self.elr != list(self.now.elr):
            self.record.eligible_leader_replicas = self.elr

    def _note_last_leader(self) -> None:
        """Keeps the last known leader from the loss of the leader until the next election. A
        partition that lost its leader before eligible leaders were enabled has none to keep; its
        sole in-sync replica, if it is lost too, is the one that may lead again."""
        if not self.rules.elr_enabled:
            return
        known = self.now.last_known_elr
        if self.record.leader == NO_LEADER and not known:
            self.record.last_known_elr = [self.now.leader]
        elif self.record.leader >= 0 and known:
            self.record.last_known_elr = []
        elif self.record.isr == [] and self.now.leader == NO_LEADER and len(self.now.isr) == 1:
            self.record.last_known_elr = list(self.now.isr)

    def _note_assignment(self) -> None:
        if not self.replicas:
            return
        directories = [
            self.directories.get(replica, self.rules.directories(replica))
            for replica in self.replicas
        ]
        if self.rules.has_directories and directories != list(self.now.directories):
            self.record.directories = directories
        if self.replicas != list(self.now.replicas):
            self.record.replicas = self.replicas
        if self.removing != list(self.now.removing):
            self.record.removing_replicas = self.removing
        if self.adding != list(self.now.adding):
            self.record.adding_replicas = self.adding
