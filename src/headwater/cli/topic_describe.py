"""`headwater topic describe`: partitions, replicas and configs of topics, and what is wrong."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.cli.connection import open_admin
from headwater.cli.errors import FAILED, CommandError
from headwater.cli.output import plural, print_fields, print_json, print_table

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.admin import ConfigEntry, Partition, Topic


def require_topics(admin: Admin, names: Iterable[str]) -> dict[str, Topic]:
    """Returns the topics by name; one that does not exist ends the command."""
    from headwater.client.admin import or_raise
    from headwater.client.errors import UnknownTopic

    told = admin.describe_topics(names)
    for name, each in told.items():
        if isinstance(each, UnknownTopic):
            raise no_topic(name)
    return or_raise(told)


def no_topic(name: str) -> CommandError:
    return CommandError(f"there is no topic {name}", then="`headwater topic list` shows the topics")


def problem_of(partition: Partition) -> str | None:
    """Says what is wrong with a partition, or returns None."""
    if partition.leader is None:
        return "offline: no replica is available as leader"
    missing = [each for each in partition.replicas if each not in partition.in_sync]
    if missing:
        return f"not in sync: {','.join(map(str, missing))}"
    return None


def describe(options: Namespace) -> int:
    with open_admin(options) as admin:
        names = options.topics or [each.name for each in admin.list_topics(internal=True)]
        topics = list(require_topics(admin, names).values())
        if options.problems:
            return _show_problems(topics, options.output)
        configs = _own_configs(admin, names)
    if options.output == "json":
        print_json([_topic_as_json(topic, configs[topic.name]) for topic in topics])
        return 0
    for number, topic in enumerate(topics):
        if number:
            print()
        _print_topic(topic, configs[topic.name])
    return 0


def _own_configs(admin: Admin, names: list[str]) -> dict[str, dict[str, ConfigEntry]]:
    """Returns the configs that are set on the topics themselves."""
    from headwater.client.admin import or_raise, topic_config

    told = or_raise(admin.describe_configs([topic_config(name) for name in names]))
    return {
        resource.name: {name: entry for name, entry in entries.items() if entry.is_own}
        for resource, entries in told.items()
    }


def _print_topic(topic: Topic, configs: dict[str, ConfigEntry]) -> None:
    set_here = ", ".join(f"{name}={entry.value}" for name, entry in configs.items())
    fields: dict[str, object] = {
        "topic": topic.name,
        "id": topic.id or "-",
        "partitions": len(topic.partitions),
        "replicas": topic.replication,
        "configs": set_here or "all defaults",
    }
    print_fields(fields, output="text")
    print()
    _print_partitions([(topic.name, each) for each in topic.partitions], with_topic=False)


def _print_partitions(partitions: list[tuple[str, Partition]], *, with_topic: bool) -> None:
    columns = ["partition", "leader", "replicas", "in sync", ""]
    rows: list[list[object]] = [
        [
            each.index,
            "none" if each.leader is None else each.leader,
            ",".join(map(str, each.replicas)),
            ",".join(map(str, each.in_sync)),
            problem_of(each) or "",
        ]
        for _, each in partitions
    ]
    if with_topic:
        columns.insert(0, "topic")
        for row, (topic, _) in zip(rows, partitions, strict=True):
            row.insert(0, topic)
    print_table(columns, rows, output="text")


def _show_problems(topics: list[Topic], output: str) -> int:
    found = [
        (topic.name, each)
        for topic in topics
        for each in topic.partitions
        if problem_of(each) is not None
    ]
    if output == "json":
        print_json([{"topic": name, **_partition_as_json(each)} for name, each in found])
    elif found:
        _print_partitions(found, with_topic=True)
    else:
        count = sum(len(topic.partitions) for topic in topics)
        print(f"all {plural(count, 'partition')} have a leader, and all replicas are in sync")
    return FAILED if found else 0


def _topic_as_json(topic: Topic, configs: dict[str, ConfigEntry]) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": topic.id,
        "internal": topic.is_internal,
        "replication": topic.replication,
        "configs": {name: entry.value for name, entry in configs.items()},
        "partitions": [_partition_as_json(each) for each in topic.partitions],
    }


def _partition_as_json(partition: Partition) -> dict[str, Any]:
    return {
        "partition": partition.index,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "in_sync": list(partition.in_sync),
        "offline": list(partition.offline),
        "problem": problem_of(partition),
    }
