"""`headwater completion`: completes commands, options, topics and groups in shells.

The scripts know nothing: they hand the words over to `headwater completion words`. The parsers that
read the command line say which words may come next, and the cluster names its topics, groups and
settings. Exit code 0 comes with the candidates; any other means a file name, which shells complete
themselves.
"""

from __future__ import annotations

import os
import shlex
import sys
from argparse import REMAINDER, SUPPRESS, Action, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headwater.cli.errors import FAILED, CommandError
from headwater.cli.parser import HIDDEN, add_actions

_EXAMPLES = """\
examples:
  eval "$(headwater completion bash)"                              in ~/.bashrc
  eval "$(headwater completion zsh)"                               in ~/.zshrc, after compinit
  headwater completion fish > ~/.config/fish/completions/headwater.fish
"""

# Bash splits words at `:` and `=`, as in an address or --output=json; so its script hands over the
# line, and the piece of the last word that our answer will replace.
_BASH = """\
_headwater() {
    local IFS=$'\\n' piece="${COMP_WORDS[COMP_CWORD]}" found
    if found=$(headwater completion words "--bash=.$piece" -- "${COMP_LINE:0:COMP_POINT}" \\
        2>/dev/null); then
        COMPREPLY=($found)
    else
        COMPREPLY=()
        compopt -o default
    fi
}
complete -F _headwater headwater
"""
_ZSH = """\
_headwater() {
    local found
    if found="$(headwater completion words -- "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)"
    then
        [[ -n $found ]] && compadd -- ${(f)found}
    else
        _files
    fi
}
compdef _headwater headwater
"""
_FISH = """\
function __headwater_words
    set -l token (commandline -ct)
    set -l found (headwater completion words -- (commandline -opc)[2..-1] "$token" 2>/dev/null)
    if test $status -eq 0
        printf '%s\\n' $found
    else
        __fish_complete_path "$token"
    end
end
complete -c headwater -f -a '(__headwater_words)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

_START_TIMEOUT_MS = 500  # someone waits with a finger on the key
_FILES = ("FILE", "PATH", "DIR")
_KNOWN = {
    "STATE": ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Reconciling"),
    "WHERE": ("beginning", "end"),
    "TYPE": ("classic", "consumer", "share", "streams"),
    "QUOTA": (
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "connection_creation_rate",
    ),
    "TXN_STATE": (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
    ),
}


def define(parser: ArgumentParser) -> None:
    shells = [(name, f"print the script for {name}", _define_shell(name)) for name in _SCRIPTS]
    add_actions(parser, [*shells, (HIDDEN, "", _define_words)], examples=_EXAMPLES)


def _define_shell(name: str) -> Callable[[ArgumentParser], None]:
    def define(action: ArgumentParser) -> None:
        action.set_defaults(run=lambda _: print(_SCRIPTS[name], end="") or 0)

    return define


def _define_words(action: ArgumentParser) -> None:
    action.add_argument("--bash", help=SUPPRESS)
    action.add_argument("words", nargs=REMAINDER, help=SUPPRESS)
    action.set_defaults(run=_print_words)


def _print_words(options: Namespace) -> int:
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    kept = 0
    if options.bash is not None:
        words = _words_of(words[0])
        # The script puts a dot before it: argparse would interpret a piece that begins with --.
        piece = options.bash[1:]
        piece = "" if piece in (":", "=") else piece.lstrip("\"'")
        kept = len(words[-1]) - len(piece)
    found = candidates(words or [""])
    if found is None:
        return FAILED
    for each in found:
        print(each[kept:])
    return 0


def _words_of(line: str) -> list[str]:
    """Splits a command line up to the cursor into words, without the command itself."""
    for closing in ("", '"', "'"):  # for a quote that is still open
        try:
            words = shlex.split(line + closing)
            break
        except ValueError:
            words = line.split()
    if not closing and line[-1:].isspace():
        words.append("")
    return words[1:] or [""]


# Candidates


@dataclass(slots=True)
class _Place:
    """The place of the cursor: the parser in charge, the arguments typed for it, and the option
    that waits for its value."""

    parser: ArgumentParser
    typed: list[str] = field(default_factory=list)
    waiting: Action | None = None


def candidates(words: Sequence[str]) -> list[str] | None:
    """Returns the candidates for the last word, which may be empty; None means a file name."""
    from headwater.cli.main import FOR_ANY_COMMAND, behind, parser_for

    *before, prefix = words
    given = behind(before)
    place = _place(parser_for(given), given)
    if place.waiting is not None:
        found = _values_of(place.waiting, place, given)
    elif prefix.startswith("-"):
        found = _options(prefix, place, given)
    elif before and given == before and before[-1] in FOR_ANY_COMMAND:
        found = []  # its value; without a command nothing is known of it
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
    """Completes a command, an action or a positional argument."""
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
    """Returns the names that the cluster knows; none if it does not answer quickly."""
    from headwater.cli.connection import open_admin

    if what not in ("TOPIC", "GROUP", "BROKER", "KEY", "TRANSACTIONAL_ID"):
        return []
    options = Namespace(
        bootstrap=_given("--bootstrap", given),
        profile=_given("--profile", given),
        start_timeout_ms=_START_TIMEOUT_MS,
    )
    # Warnings of clients would appear in the middle of the command line.
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until this process ends, which is soon
    try:
        with open_admin(options) as admin:
            match what:
                case "TOPIC":
                    return [each.name for each in admin.list_topics()]
                case "GROUP":
                    return [each.id for each in admin.list_groups()]
                case "TRANSACTIONAL_ID":
                    return [each.transactional_id for each in admin.list_transactions()]
                case "BROKER":
                    return ["all", *(str(each.id) for each in admin.describe_cluster().nodes)]
            from headwater.cli.config import resource_of

            return list(admin.describe_config(resource_of(*typed[:2]))) if typed[1:] else []
    except CommandError:
        return []


def _given(option: str, words: Sequence[str]) -> str | None:
    """Returns the value of an option, given as one word or two."""
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
