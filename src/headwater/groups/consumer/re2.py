"""Regular expressions of subscriptions: RE2's syntax, matched in time linear in the topic's name.

Kafka compiles them with RE2/J; a pattern that RE2/J accepts is accepted here, and one that it
refuses is refused with the same message. A pattern comes from a client, so it must not be able to
hold the coordinator up: it is run as an automaton whose states are made as they are met and kept,
never by backtracking. What RE2/J would let grow without end (`((a{100}){100}){100}`) is refused as
too large.

The name of a topic is made of ASCII letters, digits, dots, dashes and underscores, so a set of
characters is kept as a mask of the 128 ASCII codes, and characters beyond them cannot match.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TypeAlias

REPEAT_MAX = 1000
# Nested groups; each takes one or more levels of recursion in the parser and the compiler.
_DEPTH_MAX = 100
_ALL = (1 << 128) - 1


class PatternError(ValueError):
    """An invalid pattern, with RE2/J's message."""


@dataclass(frozen=True, slots=True)
class Chars:
    mask: int


@dataclass(frozen=True, slots=True)
class Assertion:
    """A position, not a character: `^` start, `$` end, `b` a word boundary, `B` none."""

    kind: str


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`most` of None is unbounded. Greediness does not matter: the whole name has to match."""

    node: Node
    least: int
    most: int | None


Node: TypeAlias = Chars | Assertion | Sequence | Choice | Repeat


def mask_of(*ranges: str) -> int:
    """Returns the mask of ranges, each given by its first and last character: `"az", "09"`."""
    mask = 0
    for pair in ranges:
        mask |= (1 << (ord(pair[1]) + 1)) - (1 << ord(pair[0]))
    return mask & _ALL


WORD = mask_of("az", "AZ", "09", "__")
_LETTERS = mask_of("az", "AZ")
_PERL = {"d": mask_of("09"), "s": mask_of("\t\n", "\f\r", "  "), "w": WORD}
_POSIX = {
    "alnum": mask_of("az", "AZ", "09"),
    "alpha": _LETTERS,
    "ascii": _ALL,
    "blank": mask_of("\t\t", "  "),
    "cntrl": mask_of("\0\x1f", "\x7f\x7f"),
    "digit": mask_of("09"),
    "graph": mask_of("!~"),
    "lower": mask_of("az"),
    "print": mask_of(" ~"),
    "punct": mask_of("!/", ":@", "[`", "{~"),
    "space": mask_of("\t\r", "  "),
    "upper": mask_of("AZ"),
    "word": WORD,
    "xdigit": mask_of("09", "af", "AF"),
}
_CATEGORY_NAMES = (
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z "
    "Zl Zp Zs"
)
_SCRIPT_NAMES = (
    "Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak "
    "Bengali Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian "
    "Caucasian_Albanian Chakma Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic Deseret "
    "Devanagari Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Georgian Glagolitic "
    "Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Han Hangul Hanifi_Rohingya Hanunoo "
    "Hatran Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi "
    "Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Khojki "
    "Khudawadi Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar "
    "Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui "
    "Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean "
    "Nandinagari New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Old_Hungarian "
    "Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic "
    "Oriya Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi "
    "Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian "
    "Sora_Sompeng Soyombo Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet "
    "Takri Tamil Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Ugaritic Vai Wancho "
    "Warang_Citi Yi Zanabazar_Square"
)
_CATEGORIES = frozenset(_CATEGORY_NAMES.split())
# ASCII by Unicode's categories, as ranges of first and last character.
_ASCII_CATEGORIES = {
    "Cc": mask_of("\0\x1f", "\x7f\x7f"),
    "Ll": mask_of("az"),
    "Lu": mask_of("AZ"),
    "Nd": mask_of("09"),
    "Pc": mask_of("__"),
    "Pd": mask_of("--"),
    "Pe": mask_of("))", "]]", "}}"),
    "Po": mask_of("!#", "%'", "**", ",,", "./", ":;", "?@", "\\\\"),
    "Ps": mask_of("((", "[[", "{{"),
    "Sc": mask_of("$$"),
    "Sk": mask_of("^^", "``"),
    "Sm": mask_of("++", "<>", "||", "~~"),
    "Zs": mask_of("  "),
}
_SCRIPTS = frozenset(_SCRIPT_NAMES.split())
_ESCAPED = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_INVALID_ESCAPE = "invalid escape sequence"
_INVALID_RANGE = "invalid character class range"
_INVALID_REPEAT = "invalid repeat count"
_INVALID_PERL = "invalid or unsupported Perl syntax"


def _unicode_mask(name: str) -> int:
    if name == "Any":
        return _ALL
    if name in _CATEGORIES:
        parts = (mask for part, mask in _ASCII_CATEGORIES.items() if part.startswith(name))
        return reduce(or_, parts, 0)
    if name == "Latin":
        return _LETTERS
    if name == "Common":
        return _ALL & ~_LETTERS
    if name in _SCRIPTS:
        return 0
    raise PatternError(_INVALID_RANGE)


def _folded(mask: int) -> int:
    upper, lower = mask & mask_of("AZ"), mask & mask_of("az")
    return mask | (upper << 32) | (lower >> 32)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.fold = False
        self.names: set[str] = set()
        self.depth = 0

    def parse(self) -> Node:
        node = self.choice()
        if self.at < len(self.text):
            raise PatternError("regexp/syntax: internal error")  # RE2/J's message for a stray `)`
        return node

    def more(self, start: str) -> bool:
        return self.text.startswith(start, self.at)

    def choice(self) -> Node:
        options = [self.sequence()]
        while self.more("|"):
            self.at += 1
            options.append(self.sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def sequence(self) -> Node:
        parts: list[Node] = []
        repeated = False  # a repetition of a repetition is refused
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            bounds = self.repetition()
            if bounds is not None:
                if repeated:
                    raise PatternError("invalid nested repetition operator")
                if not parts:
                    raise PatternError("missing argument to repetition operator")
                parts.append(Repeat(parts.pop(), *bounds))
                repeated = True
                continue
            repeated = False
            parts.extend(self.atom())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def repetition(self) -> tuple[int, int | None] | None:
        bounds: tuple[int, int | None] | None
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        bounds = simple.get(self.text[self.at])
        if bounds is not None:
            self.at += 1
        elif self.text[self.at] == "{":
            bounds = self.counted()
        if bounds is not None and self.more("?"):
            self.at += 1
        return bounds

    def counted(self) -> tuple[int, int | None] | None:
        """Parses `{n}`, `{n,}` or `{n,m}`; anything else that starts with a brace is literal."""
        end = self.text.find("}", self.at)
        if end < 0:
            return None
        low, comma, high = self.text[self.at + 1 : end].partition(",")
        if not _is_count(low) or (high and not _is_count(high)):
            return None
        least = int(low)
        most = least if not comma else int(high) if high else None
        if least > REPEAT_MAX or (most is not None and not least <= most <= REPEAT_MAX):
            raise PatternError(_INVALID_REPEAT)
        self.at = end + 1
        return least, most

    def atom(self) -> list[Node]:
        char = self.text[self.at]
        if char == "(":
            return self.group()
        if char == "[":
            return [Chars(self.char_class())]
        if char == "\\":
            return self.escape()
        self.at += 1
        if char == ".":
            return [Chars(_ALL)]
        if char in "^$":
            return [Assertion(char)]
        return [self.literal(char)]

    def literal(self, char: str) -> Chars:
        same = {char, *(char.lower() + char.upper() if self.fold else "")}
        return Chars(sum(1 << ord(one) for one in same if ord(one) < 128))

    def group(self) -> list[Node]:
        fold = self.fold
        self.at += 1
        self.depth += 1
        if self.depth > _DEPTH_MAX:
            raise PatternError("expression nests too deeply")
        if self.more("?") and not self.flags_or_name():
            self.depth -= 1
            return []  # `(?i)` applies to the end of the enclosing group
        node = self.choice()
        if not self.more(")"):
            raise PatternError("missing closing )")
        self.at += 1
        self.depth -= 1
        self.fold = fold
        return [node]

    def flags_or_name(self) -> bool:
        """Parses the part between `(?` and the group's pattern; returns False if there is none."""
        for start in ("?P<", "?<"):
            if self.more(start):
                end = self.text.find(">", self.at)
                name = self.text[self.at + len(start) : end] if end >= 0 else ""
                if not name or not name.isascii() or not name.replace("_", "a").isalnum():
                    raise PatternError("invalid named capture")
                if name in self.names:
                    raise PatternError("duplicate capture group name")
                self.names.add(name)
                self.at = end + 1
                return True
        self.at += 1
        positive, flagged = True, True
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == "-" and positive:
                positive, flagged = False, False
            elif char in ":)" and flagged:
                return char == ":"
            elif char in "imsU":
                flagged = True
                if char == "i":
                    self.fold = positive
            else:
                break
        if self.at >= len(self.text) and self.text[-1] == ":":
            raise PatternError("missing closing )")
        raise PatternError(_INVALID_PERL)

    def escape(self) -> list[Node]:
        if self.at + 1 >= len(self.text):
            raise PatternError("trailing backslash at end of expression")
        char = self.text[self.at + 1]
        places = {"A": "^", "z": "$", "b": "b", "B": "B"}
        if char in places:
            self.at += 2
            return [Assertion(places[char])]
        if char == "Q":
            end = self.text.find("\\E", self.at)
            plain = self.text[self.at + 2 : end if end >= 0 else len(self.text)]
            self.at = end + 2 if end >= 0 else len(self.text)
            return [self.literal(one) for one in plain]
        mask = self.named_class()
        if mask is not None:
            return [Chars(mask)]
        code = self.escaped_code()
        return [self.literal(chr(code))]

    def named_class(self) -> int | None:
        """Parses `\\d` and the like, `\\pN`, `\\p{Greek}` and `\\P{^Greek}`; else None."""
        char = self.text[self.at + 1 : self.at + 2]
        if char and char in "dswDSW":
            self.at += 2
            mask = _PERL[char.lower()]
            return mask if char.islower() else _ALL & ~mask
        if char not in ("p", "P"):
            return None
        at = self.at + 2
        if self.text.startswith("{", at):
            end = self.text.find("}", at)
            if end < 0:
                raise PatternError(_INVALID_RANGE)
            name = self.text[at + 1 : end]
        else:
            end = at
            name = self.text[at : at + 1]
        self.at = end + 1
        negated = (char == "P") != name.startswith("^")
        mask = _unicode_mask(name.removeprefix("^"))
        mask = _folded(mask) if self.fold else mask
        return _ALL & ~mask if negated else mask

    def escaped_code(self) -> int:
        """Parses one escaped character."""
        self.at += 1
        char = self.text[self.at]
        self.at += 1
        if char in _ESCAPED:
            return _ESCAPED[char]
        if char == "x":
            return self.hexadecimal()
        following = self.text[self.at : self.at + 1]
        if char == "0" or (char in "1234567" and "0" <= following <= "7" and following):
            digits = char
            while len(digits) < 3 and self.at < len(self.text) and self.text[self.at] in "01234567":
                digits += self.text[self.at]
                self.at += 1
            return int(digits, 8)
        if ord(char) < 128 and not char.isalnum():
            return ord(char)
        raise PatternError(_INVALID_ESCAPE)

    def hexadecimal(self) -> int:
        if self.more("{"):
            end = self.text.find("}", self.at)
            digits = self.text[self.at + 1 : end] if end >= 0 else ""
            after = end + 1
        else:
            digits = self.text[self.at : self.at + 2]
            after = self.at + 2
            digits = digits if len(digits) == 2 else ""
        if not digits or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise PatternError(_INVALID_ESCAPE)
        code = int(digits, 16)
        if code > 0x10FFFF:
            raise PatternError(_INVALID_ESCAPE)
        self.at = after
        return code

    def char_class(self) -> int:
        self.at += 1
        negated = self.more("^")
        self.at += negated
        mask, first = 0, True
        while first or not self.more("]"):
            if self.at >= len(self.text):
                raise PatternError("missing closing ]")
            first = False
            mask |= self.class_item()
        self.at += 1
        mask = _folded(mask) if self.fold else mask
        return _ALL & ~mask if negated else mask

    def class_item(self) -> int:
        if self.more("[:"):
            end = self.text.find(":]", self.at + 2)
            if end >= 0:
                name = self.text[self.at + 2 : end]
                mask = _POSIX.get(name.removeprefix("^"))
                if mask is None:
                    raise PatternError(_INVALID_RANGE)
                self.at = end + 2
                return _ALL & ~mask if name.startswith("^") else mask
        if self.more("\\"):
            named = self.named_class()
            if named is not None:
                return named
        low = high = self.class_code()
        if self.more("-") and self.at + 1 < len(self.text) and self.text[self.at + 1] != "]":
            self.at += 1
            high = self.class_code()
            if high < low:
                raise PatternError(_INVALID_RANGE)
        return ((1 << (min(high, 127) + 1)) - (1 << low)) if low < 128 else 0

    def class_code(self) -> int:
        if self.at >= len(self.text):
            raise PatternError("missing closing ]")
        if self.more("\\"):
            if self.at + 1 >= len(self.text):
                raise PatternError("trailing backslash at end of expression")
            return self.escaped_code()
        self.at += 1
        return ord(self.text[self.at - 1])


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and (len(text) == 1 or text[0] != "0")


def parse(text: str) -> Node:
    """Returns the tree of a pattern, or raises PatternError."""
    return _Parser(text).parse()


# Limits on the cost of one pattern; real ones have some dozens of each.
_PROGRAM_MAX = 20_000
_TRANSITIONS_MAX = 20_000

# A step is (kind, argument, targets); the last step of a program is the match.
_CHARS, _PLACE, _SPLIT, _MATCH = range(4)
_Step = tuple[int, object, tuple[int, ...]]
# A state of the automaton: its next steps, and the character before, "" at the start.
_State = tuple[frozenset[int], str]


class Pattern:
    """A compiled pattern; an invalid one raises PatternError."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._program: list[_Step] = [(_MATCH, None, ())]
        self._start: _State = (frozenset((self._compiled(parse(text), 0),)), "")
        self._moves: dict[tuple[_State, str], _State] = {}

    def matches(self, name: str) -> bool:
        """Returns whether the whole name matches."""
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
        """Adds the steps of `node`, followed by `following`; returns the first of them."""
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
        """Returns all steps reachable before the next character, which is "" at the end."""
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
        # Of the character before, it only matters whether it is part of a word.
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
