"""The parser of the command line: what it refuses it says in a line, with what was probably meant.

`argparse` prints all the options first, and a user looks for the one word that was wrong at the end
of them.
"""

from __future__ import annotations

from argparse import Action, ArgumentError, ArgumentParser
from collections.abc import Iterable, Sequence

from headwater.cli.errors import USAGE

TYPE_CHECKING = False  # as in `typing`, which takes longer to load than all of this
if TYPE_CHECKING:
    from typing import NoReturn

_MISSING = "the following arguments are required: "
HIDDEN = "words"  # an action that shells call and nobody types


class Parser(ArgumentParser):
    """Of `headwater`, of each of its commands and of each of their actions."""

    def error(self, message: str) -> NoReturn:
        what = message.removeprefix("argument ").replace(_MISSING, "expected ")
        self.exit(USAGE, f"{self.prog}: {what}\n  `{self.prog} --help` shows what there is\n")

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """For words that are left when all that is known has been read."""
        options = [word for word in words if word.startswith("-")]
        if not options:
            self.error(f"{words[0]}: it is not clear what this is for")
        name = options[0].partition("=")[0]
        known = [option for action in self._actions for option in action.option_strings]
        self.error(f"there is no option {name}{meant(name, known)}")

    def _check_value(self, action: Action, value: object) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices if choice != HIDDEN]
        if action.dest in ("command", "action"):
            near = meant(str(value), choices)
            offered = near or f"; there are {', '.join(choices)}"
            self.error(f"there is no {action.dest} {value}{offered}")
        raise ArgumentError(action, f"{value}: expected {one_of(choices)}{meant(value, choices)}")


def meant(given: object, known: Iterable[str]) -> str:
    """`; did you mean --output?`, or nothing if nothing is near."""
    from difflib import get_close_matches

    near = get_close_matches(str(given), list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def one_of(words: Sequence[str]) -> str:
    """`text or json`; `a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
