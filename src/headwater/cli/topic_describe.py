"""`headwater topic describe`: partitions, replicas and configs of topics, and what is wrong."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headwater.cli.cluster_health import Replicated
from headwater.cli.cluster_status import replicated
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


def problem_of(each: Replicated) -> str | None:
    """Says what is wrong with a partition, or returns None."""
    if each.is_offline:
        return f"offline: no leader; {_to_start(each.partition)}"
    missing = _ids(each.missing)
    if each.is_below_minimum:
        return f"below min.insync.replicas={each.min_isr}: not in sync: {missing}"
    return f"not in sync: {missing}" if missing else None


def _to_start(partition: Partition) -> str:
    """Says which nodes bring a partition back without loss: those that were in sync last."""
    last = [*partition.in_sync, *(partition.eligible or ())] or partition.last_known_eligible
    return f"start node {' or '.join(map(str, last))}" if last else "no eligible replica is left"


def _ids(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def describe(options: Namespace) -> int:
    with open_admin(options) as admin:
        names = options.topics or [each.name for each in admin.list_topics(internal=True)]
        topics = list(require_topics(admin, names).values())
        partitions = replicated(admin, topics)
        if options.problems:
            return _show_problems(partitions, options.output)
        configs = _own_configs(admin, names)
    of_topic: dict[str, list[Replicated]] = {topic.name: [] for topic in topics}
    for each in partitions:
        of_topic[each.topic].append(each)
    if options.output == "json":
        print_json(
            [_topic_as_json(each, configs[each.name], of_topic[each.name]) for each in topics]
        )
        return 0
    for number, topic in enumerate(topics):
        if number:
            print()
        _print_topic(topic, configs[topic.name], of_topic[topic.name])
    return 0


def _own_configs(admin: Admin, names: list[str]) -> dict[str, dict[str, ConfigEntry]]:
    """Returns the configs that are set on the topics themselves."""
    from headwater.client.admin import or_raise, topic_config

    told = or_raise(admin.describe_configs([topic_config(name) for name in names]))
    return {
        resource.name: {name: entry for name, entry in entries.items() if entry.is_own}
        for resource, entries in told.items()
    }


def _print_topic(
    topic: Topic, configs: dict[str, ConfigEntry], partitions: list[Replicated]
) -> None:
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
    _print_partitions(partitions, with_topic=False)


def _print_partitions(partitions: Sequence[Replicated], *, with_topic: bool) -> None:
    """Prints a row for each; columns that would be empty throughout are left out."""
    eligible = any(each.partition.eligible for each in partitions)
    offline = any(each.partition.offline for each in partitions)
    columns = ["topic"] if with_topic else []
    columns += ["partition", "leader", "replicas", "in sync"]
    columns += ["eligible"] if eligible else []
    columns += ["offline"] if offline else []
    rows = []
    for each in partitions:
        partition = each.partition
        row: list[object] = [each.topic] if with_topic else []
        row += [partition.index, "none" if partition.leader is None else partition.leader]
        row += [_ids(partition.replicas), _ids(partition.in_sync)]
        row += [_ids(partition.eligible or ())] if eligible else []
        row += [_ids(partition.offline)] if offline else []
        rows.append([*row, problem_of(each) or ""])
    print_table([*columns, ""], rows, output="text")


def _show_problems(partitions: Sequence[Replicated], output: str) -> int:
    found = [each for each in partitions if problem_of(each) is not None]
    if output == "json":
        print_json([{"topic": each.topic, **_partition_as_json(each)} for each in found])
    elif found:
        _print_partitions(found, with_topic=True)
    else:
        count = plural(len(partitions), "partition")
        print(f"all {count} have a leader, and all replicas are in sync")
    return FAILED if found else 0


def _topic_as_json(
    topic: Topic, configs: dict[str, ConfigEntry], partitions: list[Replicated]
) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": topic.id,
        "internal": topic.is_internal,
        "replication": topic.replication,
        "configs": {name: entry.value for name, entry in configs.items()},
        "partitions": [_partition_as_json(each) for each in partitions],
    }


def _partition_as_json(each: Replicated) -> dict[str, Any]:
    partition = each.partition
    eligible, last_known = partition.eligible, partition.last_known_eligible
    return {
        "partition": partition.index,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "in_sync": list(partition.in_sync),
        "eligible": None if eligible is None else list(eligible),
        "last_known_eligible": None if last_known is None else list(last_known),
        "offline": list(partition.offline),
        "below_min_isr": each.is_below_minimum,
        "problem": problem_of(each),
    }
