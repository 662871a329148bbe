"""Topics, looked up by their names, and what is wrong with their partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.cli.errors import CommandError

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.admin import Partition, Topic


def require_topics(admin: Admin, names: Iterable[str]) -> dict[str, Topic]:
    """The topics by name; one that is not there ends the command."""
    from headwater.client.admin import or_raise
    from headwater.client.errors import UnknownTopic

    told = admin.describe_topics(names)
    for name, each in told.items():
        if isinstance(each, UnknownTopic):
            raise no_topic(name)
    return or_raise(told)


def no_topic(name: str) -> CommandError:
    return CommandError(
        f"there is no topic {name}", then="`headwater topic list` shows those there are"
    )


def problem_of(partition: Partition) -> str | None:
    """What is not as it should be, in a few words."""
    if partition.leader is None:
        return "offline: no replica that could lead is up"
    missing = [each for each in partition.replicas if each not in partition.in_sync]
    if missing:
        return f"not in sync: {','.join(map(str, missing))}"
    return None
