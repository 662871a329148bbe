"""Commands that have actions: `headwater topic create`, `headwater topic list` ..."""

from __future__ import annotations

import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable
from typing import Any

from headwater.cli.errors import USAGE, CommandError

# Its name, what it does, and what defines its options.
Action = tuple[str, str, Callable[[ArgumentParser], None]]


def add_actions(parser: ArgumentParser, actions: Iterable[Action], *, examples: str) -> None:
    parser.epilog = examples
    subparsers = parser.add_subparsers(
        dest="action", metavar="ACTION", title="actions", required=True
    )
    for name, summary, define in actions:
        # An action without a summary is for programs: argparse lists what has a help text.
        listed: dict[str, Any] = {"help": summary} if summary else {}
        action = subparsers.add_parser(
            name,
            **listed,
            description=summary and summary[0].upper() + summary[1:] + ".",
            epilog=_examples_of(f"{parser.prog} {name}", examples),
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        action.set_defaults(parser=action)
        define(action)


def _examples_of(words: str, examples: str) -> str:
    """Of a command's examples those that call one of its actions."""
    heading, *lines = examples.partition("\n\n")[0].splitlines()
    own = re.compile(rf"\b{re.escape(words)}\b")
    kept = [heading]
    is_own = False
    for line in lines:
        if not line.startswith("      "):  # else it goes on with the example before it
            is_own = own.search(line) is not None
        if is_own:
            kept.append(line)
    return "\n".join(kept) + "\n"


def read_pairs(items: Iterable[str], option: str) -> dict[str, str]:
    """What was given as KEY=VALUE."""
    pairs = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{option} {item}".strip() + ": expected KEY=VALUE", code=USAGE)
        pairs[key.strip()] = value.strip()
    return pairs


def read_partitions(text: str, option: str = "TOPIC") -> tuple[str, tuple[int, ...] | None]:
    """TOPIC or TOPIC:0,1,2; None stands for every partition."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    try:
        return topic, tuple(int(number) for number in numbers.split(","))
    except ValueError:
        raise CommandError(f"{option} {text}: expected TOPIC or TOPIC:0,1,2", code=USAGE) from None


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
