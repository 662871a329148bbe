"""Matches topic names against a subscription's regular expression, in time linear in the name.

A pattern comes from a client, so it must not be able to hold the coordinator up: it is run as an
automaton whose states are made as they are met and kept, never by backtracking. What RE2/J would
let grow without end (`((a{100}){100}){100}`) is refused here as too large.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.groups.consumer.pattern_syntax import (
    WORD,
    Assertion,
    Chars,
    Choice,
    Node,
    PatternError,
    Repeat,
    Sequence,
    parse,
)

# Both bound what one pattern can cost; real ones have some dozens of each.
_PROGRAM_MAX = 20_000
_TRANSITIONS_MAX = 20_000

# A step is (kind, argument, targets); the last step of a program is the match.
_CHARS, _PLACE, _SPLIT, _MATCH = range(4)
_Step = tuple[int, object, tuple[int, ...]]
# Where the automaton stands: the steps to go on from, and the character before, "" at the start.
_State = tuple[frozenset[int], str]


class Pattern:
    """A compiled pattern; PatternError says what is wrong with it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._program: list[_Step] = [(_MATCH, None, ())]
        self._start: _State = (frozenset((self._compiled(parse(text), 0),)), "")
        self._moves: dict[tuple[_State, str], _State] = {}

    def matches(self, name: str) -> bool:
        """Does the whole name match?"""
        state = self._start
        for char in name:
            moved = self._moves.get((state, char))
            if moved is None:
                moved = self._move(state, char)
            state = moved
            if not state[0]:
                return False
        return 0 in self._closure(state, "")

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(filter(self.matches, names))

    def _add(self, kind: int, argument: object, targets: tuple[int, ...]) -> int:
        if len(self._program) >= _PROGRAM_MAX:
            raise PatternError("invalid repeat count")
        self._program.append((kind, argument, targets))
        return len(self._program) - 1

    def _compiled(self, node: Node, following: int) -> int:
        """The step at which `node` starts, if `following` comes after it."""
        match node:
            case Chars(mask):
                return self._add(_CHARS, mask, (following,))
            case Assertion(kind):
                return self._add(_PLACE, kind, (following,))
            case Sequence(parts):
                for part in reversed(parts):
                    following = self._compiled(part, following)
                return following
            case Choice(options):
                starts = tuple(self._compiled(option, following) for option in options)
                return self._add(_SPLIT, None, starts)
            case Repeat(inner, least, most):
                if most is None:
                    loop = self._add(_SPLIT, None, ())
                    body = self._compiled(inner, loop)
                    self._program[loop] = (_SPLIT, None, (body, following))
                    following = loop
                else:
                    after = following
                    for _ in range(most - least):
                        body = self._compiled(inner, following)
                        following = self._add(_SPLIT, None, (body, after))
                for _ in range(least):
                    following = self._compiled(inner, following)
                return following
        raise AssertionError(node)

    def _closure(self, state: _State, following: str) -> set[int]:
        """All steps that can be reached before the next character, which is "" at the end."""
        steps, before = state
        seen: set[int] = set()
        open_steps = list(steps)
        while open_steps:
            at = open_steps.pop()
            if at in seen:
                continue
            seen.add(at)
            kind, argument, targets = self._program[at]
            if kind == _SPLIT or (kind == _PLACE and _holds(argument, before, following)):
                open_steps.extend(targets)
        return seen

    def _move(self, state: _State, char: str) -> _State:
        bit = 1 << ord(char) if ord(char) < 128 else 0
        moved: set[int] = set()
        for at in self._closure(state, char):
            kind, mask, targets = self._program[at]
            if kind == _CHARS and mask & bit:  # type: ignore[operator]
                moved.add(targets[0])
        if len(self._moves) >= _TRANSITIONS_MAX:
            self._moves.clear()
        # Only whether it is part of a word matters of the character before.
        result: _State = (frozenset(moved), "a" if bit & WORD else ".")
        self._moves[state, char] = result
        return result


def _holds(kind: object, before: str, following: str) -> bool:
    if kind == "^":
        return not before
    if kind == "$":
        return not following
    edge = _is_word(before) != _is_word(following)
    return edge if kind == "b" else not edge


def _is_word(char: str) -> bool:
    return bool(char) and char.isascii() and (char.isalnum() or char == "_")
