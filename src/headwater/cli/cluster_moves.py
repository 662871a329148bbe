"""`headwater cluster elect` and `reassign`: the leaders of partitions, and their nodes."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.cli.arguments import read_partitions
from headwater.cli.connection import add_cluster_options, one_line, open_admin
from headwater.cli.errors import FAILED, USAGE, CommandError
from headwater.cli.output import add_output_option, plural, print_json, print_outcome, print_table
from headwater.cli.topic_describe import require_topics
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.errors import ClientError

Replicas = tuple[int, ...]


def define_elect(action: ArgumentParser) -> None:
    _add_topics(action, "only this topic, or some of its partitions (default: all)")
    action.add_argument(
        "--unclean",
        action="store_true",
        help="elect any replica if there is no leader; records it does not have are lost",
    )
    action.add_argument("--yes", action="store_true", help="required with --unclean")
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_elect)


def define_reassign(action: ArgumentParser) -> None:
    _add_topics(action, "a topic, or some of its partitions, to move")
    action.add_argument(
        "--to", type=_ids, metavar="ID,...", help="the new nodes; the first is the preferred leader"
    )
    action.add_argument(
        "--file", metavar="FILE", help="a JSON file of moves, as for kafka-reassign-partitions"
    )
    action.add_argument("--cancel", action="store_true", help="cancel moves in progress")
    action.add_argument(
        "--yes", action="store_true", help="do it; without this only what would move is shown"
    )
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_reassign)


def _add_topics(action: ArgumentParser, text: str) -> None:
    action.add_argument("--topic", action="append", default=[], metavar="TOPIC[:P,...]", help=text)


def _ids(text: str) -> Replicas:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise ArgumentTypeError(f"{text}: expected ids such as 1,2,3") from None


def _chosen(admin: Admin, options: Namespace) -> dict[TopicPartition, Replicas]:
    """Returns the chosen partitions with their current replicas; by default all of them."""
    wished: dict[str, tuple[int, ...] | None] = {}
    for text in options.topic:
        topic, numbers = read_partitions(text, "--topic")
        wished[topic] = numbers
    names = wished or [each.name for each in admin.list_topics(internal=True)]
    found: dict[TopicPartition, Replicas] = {}
    for topic, about in require_topics(admin, names).items():
        chosen = wished.get(topic)
        known = {each.index: each.replicas for each in about.partitions}
        for number in known if chosen is None else chosen:
            if number not in known:
                raise CommandError(f"there is no partition {topic}:{number}")
            found[TopicPartition(topic, number)] = known[number]
    return found


# elect


def _elect(options: Namespace) -> int:
    if options.unclean and not options.yes:
        raise CommandError(
            "--unclean loses records that only the missing replicas have",
            then="add --yes if that is what you want",
            code=USAGE,
        )
    with open_admin(options) as admin:
        partitions = list(_chosen(admin, options)) if options.topic else None
        elected = admin.elect_leaders(
            partitions, kind="unclean" if options.unclean else "preferred"
        )
    failed = {where: error for where, error in elected.items() if error is not None}
    if options.output == "json":
        print_json(_outcomes(elected))
    else:
        _print_failures(failed)
        if elected:
            print(f"done: {plural(len(elected) - len(failed), 'partition')}")
        else:
            print("nothing to do: every partition has its preferred leader")
    return FAILED if failed else 0


def _outcomes(results: Mapping[TopicPartition, ClientError | None]) -> list[dict[str, Any]]:
    return [
        {
            "topic": where.topic,
            "partition": where.partition,
            "done": error is None,
            "reason": None if error is None else one_line(error),
        }
        for where, error in sorted(results.items())
    ]


def _print_failures(failed: Mapping[TopicPartition, ClientError]) -> None:
    for _, error in sorted(failed.items()):
        print_outcome(one_line(error), is_done=False)


# reassign


def _reassign(options: Namespace) -> int:
    if options.file is not None and options.topic:
        raise CommandError("--file and --topic cannot be combined", code=USAGE)
    if bool(options.topic) != (options.to is not None) and not options.cancel:
        raise CommandError("--topic and --to belong together", code=USAGE)
    if options.to is not None and options.cancel:
        raise CommandError("--cancel and --to cannot be combined", code=USAGE)
    with open_admin(options) as admin:
        if options.file is not None:
            wanted = _from_file(options.file)
            now = _now(admin, wanted)
        elif options.topic or options.cancel:
            now = _under_way(admin, options) if options.cancel else _chosen(admin, options)
            wanted = dict.fromkeys(now, options.to)
        else:
            return _show_under_way(admin, options.output)
        if options.cancel:
            wanted = dict.fromkeys(wanted)
        if not options.yes:
            _preview(now, wanted, options.output)
            return 0
        done = admin.reassign_partitions(wanted)
    failed = {where: error for where, error in done.items() if error is not None}
    if options.output == "json":
        print_json(_outcomes(done))
    else:
        _print_failures(failed)
        moves = plural(len(done) - len(failed), "move")
        print(
            f"{moves} cancelled"
            if options.cancel
            else f"{moves} started; `headwater cluster reassign` shows them"
        )
    return FAILED if failed else 0


def _under_way(admin: Admin, options: Namespace) -> dict[TopicPartition, Replicas]:
    chosen = list(_chosen(admin, options)) if options.topic else None
    moves = admin.list_reassignments(chosen)
    if not moves:
        raise CommandError("no partition is being moved")
    return {where: each.replicas for where, each in moves.items()}


def _now(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Replicas]:
    about = require_topics(admin, {each.topic for each in partitions})
    replicas = {
        TopicPartition(name, each.index): each.replicas
        for name, topic in about.items()
        for each in topic.partitions
    }
    for each in partitions:
        if each not in replicas:
            raise CommandError(f"there is no partition {each.topic}:{each.partition}")
    return {each: replicas[each] for each in partitions}


def _from_file(path: str) -> dict[TopicPartition, Replicas | None]:
    import json

    try:
        with open(path, encoding="utf-8") as file:
            return {
                TopicPartition(each["topic"], int(each["partition"])): tuple(
                    int(replica) for replica in each["replicas"]
                )
                for each in json.load(file)["partitions"]
            }
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f"--file {path}: {reason}", code=USAGE) from None
    except (ValueError, KeyError, TypeError):
        raise CommandError(
            f'--file {path}: expected {{"partitions": [{{"topic": "orders", "partition": 0, '
            '"replicas": [1, 2]}]}',
            code=USAGE,
        ) from None


def _text(replicas: Replicas | None) -> str:
    return "as before" if replicas is None else ",".join(map(str, replicas))


def _preview(
    now: Mapping[TopicPartition, Replicas],
    wanted: Mapping[TopicPartition, Replicas | None],
    output: str,
) -> None:
    if output == "json":
        print_json(
            [
                {
                    "topic": where.topic,
                    "partition": where.partition,
                    "replicas": list(now[where]),
                    "to": None if to is None else list(to),
                }
                for where, to in wanted.items()
            ]
        )
        return
    rows = [(*where, _text(now[where]), _text(to)) for where, to in wanted.items()]
    print_table(("topic", "partition", "replicas", "to"), rows, output="text")
    print("\nnothing has changed yet: --yes does it")


def _show_under_way(admin: Admin, output: str) -> int:
    moves = sorted(admin.list_reassignments().items())
    if output == "json":
        print_json(
            [
                {
                    "topic": where.topic,
                    "partition": where.partition,
                    "replicas": list(each.replicas),
                    "adding": list(each.adding),
                    "removing": list(each.removing),
                }
                for where, each in moves
            ]
        )
    elif not moves:
        print("no partition is being moved")
    else:
        rows = [
            (*where, _text(each.replicas), _text(each.adding), _text(each.removing))
            for where, each in moves
        ]
        columns = ("topic", "partition", "replicas", "adding", "removing")
        print_table(columns, rows, output="text")
    return 0
