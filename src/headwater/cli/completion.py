"""`headwater completion`: what a shell needs to complete commands, options, topics and groups.

The scripts know nothing: they hand the words over, and `completion_words` answers. Exit code 0
comes with the words there are; any other says that a file may be meant, which shells find
themselves.
"""

from __future__ import annotations

import shlex
from argparse import REMAINDER, SUPPRESS, ArgumentParser, Namespace

from headwater.cli.actions import add_actions
from headwater.cli.errors import FAILED
from headwater.cli.parser import HIDDEN

_EXAMPLES = """\
examples:
  eval "$(headwater completion bash)"                              in ~/.bashrc
  eval "$(headwater completion zsh)"                               in ~/.zshrc, behind compinit
  headwater completion fish > ~/.config/fish/completions/headwater.fish
"""

# Bash takes words apart at `:` and `=`, and so an address or --output=json; so it hands over the
# line, and the piece of the last word that it will put our answer in the place of.
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


def define(parser: ArgumentParser) -> None:
    shells = [(name, f"the script for {name}", _define_shell(name)) for name in _SCRIPTS]
    add_actions(parser, [*shells, (HIDDEN, "", _define_words)], examples=_EXAMPLES)


def _define_shell(name: str):  # type: ignore[no-untyped-def]
    def define(action: ArgumentParser) -> None:
        action.set_defaults(run=lambda _: print(_SCRIPTS[name], end="") or 0)

    return define


def _define_words(action: ArgumentParser) -> None:
    action.add_argument("--bash", help=SUPPRESS)
    action.add_argument("words", nargs=REMAINDER, help=SUPPRESS)
    action.set_defaults(run=_print_words)


def _print_words(options: Namespace) -> int:
    from headwater.cli.completion_words import candidates

    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    kept = 0
    if options.bash is not None:
        words = _words_of(words[0])
        piece = options.bash[1:]  # behind a dot: argparse would take a piece -- for its own
        piece = "" if piece in (":", "=") else piece.lstrip("\"'")
        kept = len(words[-1]) - len(piece)
    found = candidates(words or [""])
    if found is None:
        return FAILED
    for each in found:
        print(each[kept:])
    return 0


def _words_of(line: str) -> list[str]:
    """The words of a command line up to the cursor, without the command itself."""
    for closing in ("", '"', "'"):  # for a quote that is still open
        try:
            words = shlex.split(line + closing)
            break
        except ValueError:
            words = line.split()
    if not closing and line[-1:].isspace():
        words.append("")
    return words[1:] or [""]
