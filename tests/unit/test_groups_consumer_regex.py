"""Subscriptions by pattern: RE2's syntax, and the lookups of the coordinator."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ErrorCode
from headwater.groups.consumer.re2 import Pattern, PatternError
from tests.reference.consumers import Consumer, Harness, settle, topic_id

# What RE2/J 1.8 says to these, word for word.
REFUSED = {
    "[": "missing closing ]",
    "(": "missing closing )",
    ")": "regexp/syntax: internal error",
    "*": "missing argument to repetition operator",
    "a**": "invalid nested repetition operator",
    "a{2}{3}": "invalid nested repetition operator",
    "a{1001}": "invalid repeat count",
    "\\": "trailing backslash at end of expression",
    "\\8": "invalid escape sequence",
    "\\p{Foo}": "invalid character class range",
    "(?P<n>a)(?P<n>b)": "duplicate capture group name",
    "(?P<n": "invalid named capture",
    "(?=a)": "invalid or unsupported Perl syntax",
    "[z-a]": "invalid character class range",
    "[[:foo:]]": "invalid character class range",
    "\\Z": "invalid escape sequence",
    "(?:": "missing closing )",
}


@pytest.mark.parametrize(("pattern", "message"), REFUSED.items())
def test_patterns_that_re2_refuses_are_refused(pattern: str, message: str) -> None:
    with pytest.raises(PatternError, match="^" + re.escape(message) + "$"):
        Pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "matches", "differs"),
    [
        ("a.*", ["a", "ab.c"], ["ba", ""]),
        ("(?i)ab", ["AB", "ab"], ["b"]),
        ("(?i:a)b", ["Ab"], ["AB"]),
        ("[[:digit:]]+-\\d", ["12-3"], ["1-", "a-1"]),
        ("[^a-c]", ["d", "_"], ["a", "dd"]),
        ("\\Qa.b\\E", ["a.b"], ["axb"]),
        ("^a$|\\Ab\\z", ["a", "b"], ["ab"]),
        ("\\bfoo\\b.*", ["foo", "foo.x"], ["foox", "foo_"]),
        ("a\\B.", ["ab"], ["a-"]),
        ("x{2,3}y{0}z{1,}", ["xxz", "xxxzz"], ["xz", "xxyz", "xxxxz"]),
        ("\\pL+\\p{Nd}?\\P{L}*", ["ab1", "a-"], ["1a"]),
        ("(a|b|)c", ["ac", "bc", "c"], ["abc"]),
        ("\\x41\\x{42}\\103", ["ABC"], ["abc"]),
        ("é|a", ["a"], ["é", "e"]),
    ],
)
def test_whole_names_match(pattern: str, matches: list[str], differs: list[str]) -> None:
    compiled = Pattern(pattern)
    assert compiled.matching(matches + differs) == frozenset(matches)


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\w", "\\d", "-", "\\.", "\\b", "$", "^"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@given(PATTERNS, st.text(alphabet="ab1.-_", max_size=6))
def test_it_is_the_same_as_pythons_where_both_speak_one_language(pattern: str, name: str) -> None:
    assert Pattern(pattern).matches(name) == (re.fullmatch(pattern, name) is not None)


@given(st.text(alphabet="ab()[]{}|*+?\\^$.-,12PQE<>:i", max_size=12))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    with suppress(PatternError):
        Pattern(text).matches("ab-1")


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*)(.*)(.*)(.*)(.*)[^a]b"])
def test_no_pattern_can_hold_the_coordinator_up(pattern: str) -> None:
    # One that backtracks would not come back from this within the life of the machine.
    assert not Pattern(pattern).matches("a" * 249)


@pytest.mark.parametrize("pattern", ["((a{100}){100}){100}", "(" * 5000 + ")" * 5000])
def test_a_pattern_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        Pattern(pattern)


def subscriber(harness: Harness, name: str, regex: str) -> Consumer:
    consumer = Consumer(harness, name)
    consumer.regex = regex
    return consumer


def test_a_pattern_is_looked_up_after_the_heartbeat_and_then_assigned() -> None:
    harness = Harness(ra=2, rb=1, xc=1)
    member = subscriber(harness, "m", "r.*")
    answer = member.beat()
    assert (answer.error_code, answer.member_epoch, member.count) == (0, 1, 0)
    settle(harness, [member])
    assert set(member.owned) == {topic_id("ra"), topic_id("rb")}
    assert harness.group.state.resolved["r.*"].topics == {"ra", "rb"}
    assert harness.group.state.name == "Stable"


def test_an_invalid_pattern_is_refused_and_changes_nothing() -> None:
    harness = Harness(t=1)
    member = subscriber(harness, "m", "[")
    answer = member.beat()
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_message == (
        "SubscribedTopicRegex `[` is not a valid regular expression: missing closing ]."
    )
    assert harness.log == []


def test_a_new_topic_is_found_but_not_more_often_than_every_ten_seconds() -> None:
    harness = Harness(ra=1)
    member = subscriber(harness, "m", "r.*")
    member.beat()
    harness.tick(0)
    harness.world.counts["rb"] = 1
    harness.topics_changed()
    member.beat()
    harness.tick(9)
    member.beat()
    assert harness.group.state.resolved["r.*"].topics == {"ra"}
    harness.tick(2)
    member.beat()
    settle(harness, [member])
    assert member.count == 2


def test_patterns_are_looked_up_again_from_time_to_time() -> None:
    harness = Harness(ra=1)
    member = subscriber(harness, "m", "r.*")
    member.beat()
    settle(harness, [member])
    first = harness.group.state.resolved["r.*"].timestamp_ms
    for _ in range(16):
        harness.tick(40)
        member.beat()
    harness.tick(0)
    assert harness.group.state.resolved["r.*"].timestamp_ms > first


def test_the_last_member_takes_its_pattern_with_it() -> None:
    harness = Harness(ra=2)
    first, second = subscriber(harness, "a", "r.*"), subscriber(harness, "b", "r.*")
    for member in (first, second):
        member.beat()
    settle(harness, [first, second])
    second.leave()
    assert "r.*" in harness.group.state.resolved
    first.beat(subscribed_topic_regex="")
    assert harness.group.state.resolved == {}
    assert harness.group.state.topics == {}


def test_only_topics_that_the_client_may_know_of_are_found() -> None:
    harness = Harness(ra=1, rb=1)
    member = subscriber(harness, "m", "r.*")
    member.beat()
    harness.group.regexes._describable = lambda names: names - {"ra"}
    harness.tick(0)
    assert harness.group.state.resolved["r.*"].topics == {"rb"}
