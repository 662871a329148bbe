"""The command line parser: an error is one line, with the word that was probably meant.

Plain `argparse` prints the whole usage first, and the one word that was wrong comes after it.
"""

from __future__ import annotations

import re
from argparse import Action, ArgumentError, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Sequence

from headwater.cli.errors import USAGE

TYPE_CHECKING = False  # as in `typing`, which takes longer to load than all of this
if TYPE_CHECKING:
    from typing import Any, NoReturn

_MISSING = "the following arguments are required: "
HIDDEN = "words"  # an action that only shells call


class Parser(ArgumentParser):
    """The parser of `headwater`, of its commands and of their actions."""

    def error(self, message: str) -> NoReturn:
        what = message.removeprefix("argument ").replace(_MISSING, "expected ")
        self.exit(USAGE, f"{self.prog}: {what}\n  `{self.prog} --help` shows what it takes\n")

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Reports arguments that no option or argument takes."""
        options = [word for word in words if word.startswith("-")]
        if not options:
            self.error(f"unexpected argument {words[0]}")
        name = options[0].partition("=")[0]
        known = [option for action in self._actions for option in action.option_strings]
        self.error(f"unknown option {name}{meant(name, known)}")

    def _check_value(self, action: Action, value: object) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices if choice != HIDDEN]
        if action.dest in ("command", "action"):
            near = meant(str(value), choices)
            offered = near or f"; expected {one_of(choices)}"
            self.error(f"unknown {action.dest} {value}{offered}")
        raise ArgumentError(action, f"{value}: expected {one_of(choices)}{meant(value, choices)}")


def meant(given: object, known: Iterable[str]) -> str:
    """Returns `; did you mean --output?`, or nothing if nothing is similar."""
    from difflib import get_close_matches

    near = get_close_matches(str(given), list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def one_of(words: Sequence[str]) -> str:
    """Joins words: `text or json`; `a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


# Commands with actions: `headwater topic create`, `headwater topic list` ...

# The name, what it does, and the function that defines its options.
CommandAction = tuple[str, str, Callable[[ArgumentParser], None]]


def add_actions(parser: ArgumentParser, actions: Iterable[CommandAction], *, examples: str) -> None:
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
    """Returns the examples of a command that call one of its actions."""
    heading, *lines = examples.partition("\n\n")[0].splitlines()
    own = re.compile(rf"\b{re.escape(words)}\b")
    kept = [heading]
    is_own = False
    for line in lines:
        if not line.startswith("      "):  # an indented line continues the example before it
            is_own = own.search(line) is not None
        if is_own:
            kept.append(line)
    return "\n".join(kept) + "\n"
