"""A group, looked up by its name, and partitions as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.cli.errors import CommandError
from headwater.client.admin import Group, Member
from headwater.client.errors import GroupNotFound
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from headwater.blocking import Admin

__all__ = ["Group", "Member", "find_group", "partitions_text", "require_group"]


def find_group(admin: Admin, group_id: str) -> Group | None:
    """The group, whatever its kind, or None if there is none of this name."""
    try:
        return admin.describe_group(group_id)
    except GroupNotFound:
        return None


def require_group(admin: Admin, group_id: str) -> Group:
    group = find_group(admin, group_id)
    if group is None:
        raise CommandError(
            f"there is no group {group_id}", then="`headwater group list` shows those there are"
        )
    return group


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Partitions by topic, in order: `orders:0,1 clicks:3`."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in by_topic.items())
