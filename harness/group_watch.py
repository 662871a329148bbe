"""Watches one group: who owns what, what is committed, and whether somebody can lie.

What must never be seen is noted in `wrong`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.blocking import Admin
from headwater.cli.group_describe import find_group
from headwater.client.admin import Group, or_raise
from headwater.client.connection import Connection
from headwater.model import TopicPartition
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

_BY_NAME_UNTIL = 9
# No group here lives for so many generations.
_NOT_YET = 1_000_000


@dataclass(slots=True)
class Watch:
    """Looks at the group again and again; keeps what must never have been seen."""

    group_id: str
    wrong: list[str] = field(default_factory=list)
    looks: int = 0
    stable_looks: int = 0
    lies: int = 0  # commits as a member, in a generation that is not now
    ghosts: int = 0  # commits as somebody who has gone
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    seen: dict[str, int | None] = field(default_factory=dict)  # members with their last epoch

    def look(self, admin: Admin) -> None:
        group = find_group(admin, self.group_id)
        self.looks += 1
        if group is not None and group.state == "Stable":
            self.stable_looks += 1
        if group is not None and (group.state == "Stable" or group.kind == "consumer"):
            self._one_owner_each(group)
        for partition, found in admin.group_offsets(self.group_id).items():
            offset = found.offset
            before = self.committed.get(partition, -1)
            if offset < before:
                self.wrong.append(f"{partition}: committed {before}, then {offset}")
            self.committed[partition] = offset
        if group is not None and group.members and self.committed:
            self._lie(admin, group)

    def _one_owner_each(self, group: Group) -> None:
        owners: dict[TopicPartition, str] = {}
        for member in group.members:
            for partition in member.assigned:
                if partition in owners:
                    who = f"{owners[partition]} and {member.id}"
                    self.wrong.append(f"{partition}: owned by {who} in {group.state}")
                owners[partition] = member.id

    def _lie(self, admin: Admin, group: Group) -> None:
        here = {member.id: member.epoch for member in group.members}
        gone = [each for each in self.seen.items() if each[0] not in here]
        self.seen |= here
        member_id, epoch = next(iter(here.items()))
        self._commit(admin, member_id, (epoch or 0) + _NOT_YET)
        self.lies += 1
        for member_id, epoch in gone[-1:]:
            self._commit(admin, member_id, epoch or 1)
            self.ghosts += 1

    def _commit(self, admin: Admin, member_id: str, generation: int) -> None:
        """As this member of this generation, which must be refused."""
        partition = next(iter(self.committed))
        asked = OffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=0, committed_metadata="a lie"
        )
        lie = OffsetCommitRequest(
            group_id=self.group_id,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            topics=[OffsetCommitRequestTopic(name=partition.topic, partitions=[asked])],
        )
        answer = _ask_coordinator(admin, self.group_id, lie)
        if answer.topics[0].partitions[0].error_code == 0:
            self.wrong.append(f"{member_id} committed in {generation}, which is not its own")


def _ask_coordinator(admin: Admin, group_id: str, request: OffsetCommitRequest) -> Any:
    router = admin._asynchronous._router

    async def ask(node: Connection, keys: Sequence[str], deadline: float) -> dict[str, Any]:
        return {group_id: await router.ask(node, request, deadline, at_most=_BY_NAME_UNTIL)}

    return or_raise(admin._run(lambda: router.by_coordinator([group_id], ask)))[group_id]
