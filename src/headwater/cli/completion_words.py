"""What the word under the cursor may become: the same parsers that read the command line say it,
and the cluster where a topic, a group or a setting is to be named."""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, Action, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Sequence
from dataclasses import dataclass, field

from headwater.cli.errors import CommandError
from headwater.cli.main import FOR_ANY_COMMAND, behind, parser_for
from headwater.cli.parser import HIDDEN

_START_TIMEOUT_MS = 500  # somebody waits with a finger on the key
_FILES = ("FILE", "PATH", "DIR")
_KNOWN = {
    "STATE": ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Reconciling"),
    "TYPE": ("classic", "consumer", "share", "streams"),
}


@dataclass(slots=True)
class _Place:
    """Where the cursor is: whose options are meant, what was typed for it, and the option that
    waits for its value."""

    parser: ArgumentParser
    typed: list[str] = field(default_factory=list)
    waiting: Action | None = None


def candidates(words: Sequence[str]) -> list[str] | None:
    """What the last word may become; it may be empty. None: the name of a file."""
    *before, prefix = words
    given = behind(before)
    place = _place(parser_for(given), given)
    if place.waiting is not None:
        found = _values_of(place.waiting, place, given)
    elif prefix.startswith("-"):
        found = _options(prefix, place, given)
    elif before and given == before and before[-1] in FOR_ANY_COMMAND:
        found = []  # its value, and no command yet that would know what it may be
    else:
        found = _next(place, given)
    if found is None:
        return None
    return sorted(each for each in found if each.startswith(prefix))


def _place(parser: ArgumentParser, words: Sequence[str]) -> _Place:
    place = _Place(parser)
    for word in words:
        if place.waiting is not None:
            place.waiting = None
        elif word.startswith("-"):
            option = _option(place.parser, word)
            if option is not None and option.nargs != 0:
                place.waiting = option
        elif word in _subcommands(place.parser):
            place.parser = _subcommands(place.parser)[word]
        else:
            place.typed.append(word)
    return place


def _option(parser: ArgumentParser, name: str) -> Action | None:
    return next((each for each in parser._actions if name in each.option_strings), None)


def _options(prefix: str, place: _Place, given: Sequence[str]) -> list[str] | None:
    name, equals, _ = prefix.partition("=")
    option = _option(place.parser, name) if equals else None
    if option is not None:
        values = _values_of(option, place, given)
        return None if values is None else [f"{name}={value}" for value in values]
    return [
        name
        for action in place.parser._actions
        if action.help != SUPPRESS
        for name in action.option_strings
        if name.startswith("--")
    ]


def _next(place: _Place, given: Sequence[str]) -> list[str] | None:
    """A command, an action, or what stands without an option."""
    inner = _subcommands(place.parser)
    if inner:
        return [name for name in inner if name != HIDDEN]
    actions = [action for action in place.parser._actions if not action.option_strings]
    if not actions:
        return []
    if len(place.typed) < len(actions):
        return _values_of(actions[len(place.typed)], place, given)
    is_last_of_many = actions[-1].nargs in ("+", "*")
    return _values_of(actions[-1], place, given) if is_last_of_many else []


def _values_of(action: Action, place: _Place, given: Sequence[str]) -> list[str] | None:
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    what = str(action.metavar)
    if what in _FILES:
        return None
    if what in _KNOWN:
        return list(_KNOWN[what])
    if what == "PROFILE":
        return _profiles()
    if what == "NAME" and place.typed[:1] in (["topic"], ["group"], ["broker"]):
        what = place.typed[0].upper()  # of `headwater config`
    return _names(what.partition("[")[0], place.typed, given)


def _profiles() -> list[str]:
    from headwater.cli.profile import Profiles

    try:
        return list(Profiles.read().known)
    except CommandError:
        return []


def _names(what: str, typed: Sequence[str], given: Sequence[str]) -> list[str]:
    """What the cluster that the words name has of this; nothing if it cannot be asked quickly."""
    from headwater.cli.cluster_options import open_admin

    if what not in ("TOPIC", "GROUP", "BROKER", "KEY"):
        return []
    options = Namespace(
        bootstrap=_given("--bootstrap", given),
        profile=_given("--profile", given),
        start_timeout_ms=_START_TIMEOUT_MS,
    )
    # What clients warn of would stand in the middle of the command line.
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until this process ends, which is soon
    try:
        with open_admin(options) as admin:
            match what:
                case "TOPIC":
                    return [each.name for each in admin.list_topics()]
                case "GROUP":
                    return [each.id for each in admin.list_groups()]
                case "BROKER":
                    return ["all", *(str(each.id) for each in admin.describe_cluster().nodes)]
            from headwater.cli.config import resource_of

            return list(admin.describe_config(resource_of(*typed[:2]))) if typed[1:] else []
    except CommandError:
        return []


def _given(option: str, words: Sequence[str]) -> str | None:
    """The value of an option, in one word or in two."""
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else next(iter(words[index + 1 :]), None)
    return None


def _subcommands(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            return dict(action.choices)
    return {}
