"""`headwater completion`: what a shell needs to complete commands, options, topics and groups.

The scripts know nothing: they hand the words over, and the answer comes from the same parsers that
read the command line, and from the cluster where a topic or a group is to be named.
"""

from __future__ import annotations

import os
import sys
from argparse import REMAINDER, SUPPRESS, Action, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Sequence

from headwater.cli.actions import add_actions
from headwater.cli.errors import CommandError
from headwater.cli.parser import HIDDEN

_EXAMPLES = """\
examples:
  eval "$(headwater completion bash)"                              in ~/.bashrc
  eval "$(headwater completion zsh)"                               in ~/.zshrc, behind compinit
  headwater completion fish > ~/.config/fish/completions/headwater.fish
"""

_BASH = """\
_headwater() {
    local IFS=$'\\n'
    COMPREPLY=($(headwater completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [ "${#COMPREPLY[@]}" -eq 0 ] && compopt -o default
}
complete -F _headwater headwater
"""
_ZSH = """\
_headwater() {
    local -a found
    found=(${(f)"$(headwater completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( ${#found} )); then compadd -- "${found[@]}"; else _files; fi
}
compdef _headwater headwater
"""
_FISH = """\
complete -c headwater -f -a '(headwater completion words -- (commandline -opc)[2..-1] \
(commandline -ct) 2>/dev/null)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_START_TIMEOUT_MS = 500  # somebody waits with a finger on the key


def define(parser: ArgumentParser) -> None:
    shells = [(name, f"the script for {name}", _define_shell(name)) for name in _SCRIPTS]
    add_actions(parser, [*shells, (HIDDEN, SUPPRESS, _define_words)], examples=_EXAMPLES)


def _define_shell(name: str):  # type: ignore[no-untyped-def]
    def define(action: ArgumentParser) -> None:
        action.set_defaults(run=lambda _: print(_SCRIPTS[name], end="") or 0)

    return define


def _define_words(action: ArgumentParser) -> None:
    action.add_argument("words", nargs=REMAINDER, help=SUPPRESS)
    action.set_defaults(run=_print_words)


def _print_words(options: Namespace) -> int:
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    for found in candidates(words or [""]):
        print(found)
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """What the last word may become. It may be empty."""
    from headwater.cli.main import parser_for

    *before, prefix = words
    parser: ArgumentParser = parser_for(before)
    previous = None
    for word in before:
        inner = _subcommands(parser)
        if word in inner:
            parser = inner[word]
        previous = word
    found = _values(parser, previous, before, prefix)
    return sorted(each for each in found if each.startswith(prefix))


def _values(
    parser: ArgumentParser, previous: str | None, before: Sequence[str], prefix: str
) -> list[str]:
    option = next((a for a in parser._actions if previous in a.option_strings), None)
    if option is not None and option.nargs != 0:
        return _values_of(option, before)
    if prefix.startswith("-"):
        return [
            name
            for action in parser._actions
            if action.help != SUPPRESS
            for name in action.option_strings
            if name.startswith("--")
        ]
    inner = _subcommands(parser)
    if inner:
        return [name for name in inner if name != HIDDEN]
    places = [action for action in parser._actions if not action.option_strings]
    return _values_of(places[0], before) if places else []


def _values_of(action: Action, before: Sequence[str]) -> list[str]:
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    if action.metavar in ("TOPIC", "GROUP"):
        return _names(str(action.metavar), before)
    return []


def _names(what: str, before: Sequence[str]) -> list[str]:
    """Topics or groups of the cluster that the words name; none if it cannot be asked quickly."""
    from headwater.cli.cluster_options import open_admin

    named = {
        option: before[index + 1]
        for index, option in enumerate(before[:-1])
        if option in ("--bootstrap", "--profile")
    }
    options = Namespace(
        bootstrap=named.get("--bootstrap"),
        profile=named.get("--profile"),
        start_timeout_ms=_START_TIMEOUT_MS,
    )
    # What clients warn of would stand in the middle of the command line.
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until this process ends, which is soon
    try:
        with open_admin(options) as admin:
            if what == "TOPIC":
                return [each.name for each in admin.list_topics()]
            return [each.id for each in admin.list_groups()]
    except CommandError:
        return []


def _subcommands(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            return dict(action.choices)
    return {}
