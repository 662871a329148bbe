"""`headwater topic`: creates, lists, changes and deletes topics."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater.cli.arguments import from_one, read_pairs
from headwater.cli.connection import add_cluster_options, one_line, open_admin
from headwater.cli.errors import FAILED, USAGE, CommandError
from headwater.cli.output import (
    add_output_option,
    plural,
    print_json,
    print_outcome,
    print_table,
    size_text,
)
from headwater.cli.parser import add_actions
from headwater.cli.topic_describe import describe, no_topic, require_topics

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.admin import NewTopic, Topic
    from headwater.client.errors import ClientError

_EXAMPLES = """\
examples:
  headwater topic create orders --partitions 6 --config retention.ms=86400000
  headwater topic create payments --replication 3 --if-not-exists
  headwater topic list
  headwater topic list --sizes                   with their sizes on disk
  headwater topic describe orders                leaders, replicas and configs
  headwater topic describe --problems            partitions without a leader or not in sync
  headwater topic alter orders --partitions 12 --set cleanup.policy=compact
  headwater topic records orders                 offsets and number of records
  headwater topic records orders --delete-before 5000          shows what would be deleted
  headwater topic dirs orders                    the directories of its replicas
  headwater topic delete orders --yes
"""


def define(parser: ArgumentParser) -> None:
    add_actions(
        parser,
        (
            ("create", "create topics", _define_create),
            ("list", "list the topics of the cluster", _define_list),
            ("describe", "show partitions, replicas and configs of topics", _define_describe),
            ("alter", "change the configs of a topic, or give it more partitions", _define_alter),
            ("delete", "delete topics with all their records", _define_delete),
            ("records", "show the offsets of a topic, or delete its oldest records", _records),
            ("dirs", "show the directories that hold the replicas, with their sizes", _dirs),
        ),
        examples=_EXAMPLES,
    )


def _define_create(action: ArgumentParser) -> None:
    action.add_argument("topics", metavar="TOPIC", nargs="+")
    action.add_argument(
        "--partitions",
        type=from_one,
        metavar="N",
        help="number of partitions (default: num.partitions)",
    )
    action.add_argument(
        "--replication",
        type=from_one,
        metavar="N",
        help="replicas of each partition (default: default.replication.factor)",
    )
    action.add_argument(
        "--replicas",
        metavar="ID:ID,...",
        help="the brokers of each partition: 1:2,2:3 means two partitions with two replicas each",
    )
    action.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a config of the topic; may be repeated",
    )
    action.add_argument(
        "--if-not-exists", action="store_true", help="succeed if the topic already exists"
    )
    _add_dry_run(action)
    _finish(action, _create)


def _define_list(action: ArgumentParser) -> None:
    action.add_argument("--internal", action="store_true", help="include the cluster's own topics")
    action.add_argument(
        "--sizes", action="store_true", help="include the size of all replicas; asks every node"
    )
    _finish(action, _list)


def _define_describe(action: ArgumentParser) -> None:
    action.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all")
    action.add_argument(
        "--problems",
        action="store_true",
        help="show only partitions without a leader, or with replicas that are not in sync",
    )
    _finish(action, describe)


def _define_alter(action: ArgumentParser) -> None:
    from headwater.cli.config import add_change_options

    action.add_argument("topic", metavar="TOPIC")
    action.add_argument(
        "--partitions",
        type=from_one,
        metavar="N",
        help="new number of partitions; it can only grow",
    )
    action.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a config; may be repeated",
    )
    add_change_options(action)
    _add_dry_run(action)
    _finish(action, _alter)


def _define_delete(action: ArgumentParser) -> None:
    action.add_argument("topics", metavar="TOPIC", nargs="+")
    action.add_argument(
        "--if-exists", action="store_true", help="succeed if the topic does not exist"
    )
    action.add_argument(
        "--yes", action="store_true", help="do it; without this only what would be deleted is shown"
    )
    _finish(action, _delete)


def _records(action: ArgumentParser) -> None:
    from headwater.cli.topic_records import define as define_records

    define_records(action)
    add_cluster_options(action)
    add_output_option(action)


def _dirs(action: ArgumentParser) -> None:
    from headwater.cli.topic_dirs import define as define_dirs

    define_dirs(action)
    add_cluster_options(action)
    add_output_option(action)


def _add_dry_run(action: ArgumentParser) -> None:
    action.add_argument(
        "--dry-run", action="store_true", help="validate the request without changing anything"
    )


def _finish(action: ArgumentParser, run: Any) -> None:
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=run)


# create


def _create(options: Namespace) -> int:
    from headwater.client.admin import TopicCreated
    from headwater.client.errors import TopicExists

    wanted = [_new_topic(name, options) for name in options.topics]
    with open_admin(options) as admin:
        made = admin.create_topics(wanted, validate_only=options.dry_run)
    rows = []
    for name, result in made.items():
        row: dict[str, Any] = {"topic": name, "created": False}
        if isinstance(result, TopicCreated):
            row |= {
                "created": not options.dry_run,
                "id": result.id,
                "partitions": result.partitions,
                "replication": result.replication,
            }
        elif not (options.if_not_exists and isinstance(result, TopicExists)):
            row["reason"] = _without_name(result, name)
        rows.append(row)
    if options.output == "json":
        print_json(rows)
    else:
        for row in rows:
            print_outcome(_created_text(row, options), is_done="reason" not in row)
    return FAILED if any("reason" in row for row in rows) else 0


def _new_topic(name: str, options: Namespace) -> NewTopic:
    from headwater.client.admin import NewTopic

    assignments = None
    if options.replicas is not None:
        if options.partitions is not None or options.replication is not None:
            raise CommandError(
                "--replicas cannot be combined with --partitions or --replication",
                code=USAGE,
            )
        try:
            assignments = {
                index: [int(broker) for broker in brokers.split(":")]
                for index, brokers in enumerate(options.replicas.split(","))
            }
        except ValueError:
            raise CommandError(
                f"--replicas {options.replicas}: expected ids such as 1:2,2:3", code=USAGE
            ) from None
    return NewTopic(
        name,
        options.partitions,
        options.replication,
        assignments,
        read_pairs(options.config, "--config"),
    )


def _created_text(row: dict[str, Any], options: Namespace) -> str:
    if "reason" in row:
        return f"{row['topic']}: not created: {row['reason']}"
    if "id" not in row:
        return f"{row['topic']}: already exists"
    shape = ""
    if row["partitions"] is not None:
        shape = f", {plural(row['partitions'], 'partition')} of "
        shape += plural(row["replication"], "replica")
    return f"{row['topic']}: {'could be created' if options.dry_run else 'created'}{shape}"


# list


def _list(options: Namespace) -> int:
    with open_admin(options) as admin:
        topics = admin.list_topics(internal=options.internal)
        sizes, problems = _sizes(admin) if options.sizes else ({}, [])
    if options.output == "json":
        print_json(
            [
                {
                    "topic": each.name,
                    "id": each.id,
                    "partitions": each.partitions,
                    "replication": each.replication,
                    "internal": each.is_internal,
                }
                | ({"bytes": sizes.get(each.name)} if options.sizes else {})
                for each in topics
            ]
        )
    elif not topics:
        print("no topics; `headwater topic create NAME` creates one")
    else:
        columns = ["topic", "partitions", "replicas"]
        rows: list[list[object]] = [
            [each.name, each.partitions, each.replication] for each in topics
        ]
        if options.sizes:
            columns.append("size")
            for row, each in zip(rows, topics, strict=True):
                row.append(size_text(sizes[each.name]) if each.name in sizes else None)
        print_table(columns, rows, output="text")
    if problems:
        from headwater.cli.topic_dirs import print_problems

        print_problems(problems)
    return FAILED if problems else 0


def _sizes(admin: Admin) -> tuple[dict[str, int], list[str]]:
    """The bytes of all replicas of each topic, as far as nodes tell."""
    from headwater.cli.topic_dirs import replica_dirs

    replicas, problems = replica_dirs(admin)
    sizes: dict[str, int] = {}
    for each in replicas:
        sizes[each.topic] = sizes.get(each.topic, 0) + each.bytes
    return sizes, problems


# alter


def _alter(options: Namespace) -> int:
    from headwater.cli.config import change_configs, change_text, read_changes
    from headwater.client.admin import or_raise, topic_config

    changes = read_changes(options, options.set)
    if not changes and options.partitions is None:
        raise CommandError(
            "nothing to change: give --partitions N, --set KEY=VALUE ...", code=USAGE
        )
    done: dict[str, Any] = {"topic": options.topic, "changed": not options.dry_run}
    with open_admin(options) as admin:
        (topic,) = require_topics(admin, [options.topic]).values()
        if options.partitions is not None:
            or_raise(
                admin.create_partitions(
                    {options.topic: options.partitions}, validate_only=options.dry_run
                )
            )
            done["partitions"] = {"before": len(topic.partitions), "after": options.partitions}
        if changes:
            done["configs"] = change_configs(
                admin, topic_config(options.topic), changes, dry_run=options.dry_run
            )
    if options.output == "json":
        print_json(done)
        return 0
    if "partitions" in done:
        counts = done["partitions"]
        print(f"partitions: {counts['before']} -> {counts['after']}")
    for each in done.get("configs", ()):
        print(change_text(each))
    if options.dry_run:
        print("nothing has changed: this was a dry run")
    return 0


# delete


def _delete(options: Namespace) -> int:
    from headwater.client.admin import or_raise
    from headwater.client.errors import UnknownTopic

    with open_admin(options) as admin:
        told = admin.describe_topics(options.topics)
        unknown = [name for name, each in told.items() if isinstance(each, UnknownTopic)]
        if unknown and not options.if_exists:
            raise no_topic(unknown[0])  # before anything is deleted
        found = list(or_raise({k: v for k, v in told.items() if k not in unknown}).values())
        if not options.yes:
            return _preview_delete(admin, found, options.output)
        gone = admin.delete_topics(each.name for each in found)
    results = [
        {
            "topic": name,
            "deleted": name in gone and gone[name] is None,
            "reason": _reason(name, gone),
        }
        for name in told
    ]
    if options.output == "json":
        print_json(results)
    else:
        for name in told:
            text = "deleted" if name in gone and gone[name] is None else _reason(name, gone)
            print_outcome(f"{name}: {text}", is_done=gone.get(name) is None)
    return FAILED if any(gone.values()) else 0


def _reason(name: str, gone: Mapping[str, ClientError | None]) -> str | None:
    if name not in gone:
        return "not found"
    error = gone[name]
    return None if error is None else _without_name(error, name)


def _without_name(error: ClientError, name: str) -> str:
    """The reason without the name, for a line that begins with the name."""
    return one_line(error).removeprefix(f"topic {name}: ")


def _preview_delete(admin: Admin, topics: list[Topic], output: str) -> int:
    from headwater.cli.topic_records import count_records

    rows = [(each.name, len(each.partitions), count_records(admin, each)) for each in topics]
    if output == "json":
        print_json(
            [
                {"topic": name, "deleted": False, "partitions": partitions, "records": count}
                for name, partitions, count in rows
            ]
        )
        return 0
    print_table(("topic", "partitions", "records"), rows, output="text")
    print("\nnothing has changed yet: --yes deletes them for good")
    return 0
