"""The patterns that members subscribe to, and the lookups of the topics they match.

A lookup may take long, so it is not part of a heartbeat: the heartbeat asks for it, and it becomes
a decision of its own. Members that ask meanwhile share its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from headwater.coordination import Record
from headwater.errors import ApiError, ErrorCode
from headwater.groups.consumer.member import Member
from headwater.groups.consumer.re2 import Pattern, PatternError
from headwater.groups.consumer.records import group_epoch_record, regex_record, regex_tombstone
from headwater.groups.consumer.state import GroupState, count_regex
from headwater.groups.consumer.topics import Topics
from headwater.groups.settings import GroupSettings

# Reduces the topics that a pattern matches to those that a client may know of.
Describable: TypeAlias = Callable[[frozenset[str]], Iterable[str]]

# The shortest interval between two lookups; Kafka's number.
_REFRESH_INTERVAL_MS_MIN = 10_000


@dataclass(frozen=True, slots=True)
class RegexChange:
    """A change of a member's pattern by a heartbeat."""

    is_changed: bool = False
    # The topics it matches are known already, so that the group's epoch can be raised at once.
    is_resolved: bool = False
    must_resolve: bool = False


class Regexes:
    """The patterns of a group."""

    def __init__(self, state: GroupState, topics: Topics) -> None:
        self._state = state
        self._topics = topics
        self._asked: frozenset[str] | None = None
        self._describable: Describable | None = None
        # The version of the topics at the last lookup; None before the first since the load.
        self._version: int | None = None

    @property
    def is_asked(self) -> bool:
        return self._asked is not None

    def changed(self, member: Member, updated: Member, records: list[Record]) -> RegexChange:
        """Compares a member's patterns. A pattern is deleted with the last member that uses it."""
        old, new = member.topic_regex, updated.topic_regex
        if old == new:
            return RegexChange()
        state = self._state
        if new and new not in state.regexes:
            _check(new)
        if old and state.regexes.get(old) == 1:
            records.append(regex_tombstone(state.id, old))
        if not new:
            return RegexChange(is_changed=True, is_resolved=bool(old))
        if new not in state.regexes:
            return RegexChange(is_changed=True, must_resolve=True)
        return RegexChange(is_changed=True, is_resolved=new in state.resolved)

    def forgotten(self, members: Iterable[Member], records: list[Record]) -> list[str]:
        """Returns the patterns that no member uses once these have gone."""
        counts: dict[str, int] = {}
        for member in members:
            if member.topic_regex:
                counts[member.topic_regex] = counts.get(member.topic_regex, 0) + 1
        gone = [name for name, count in counts.items() if self._state.regexes[name] == count]
        records.extend(regex_tombstone(self._state.id, name) for name in gone)
        return gone

    def ask(
        self,
        regexes: Mapping[str, int],
        settings: GroupSettings,
        now_ms: int,
        describable: Describable | None,
        *,
        must: bool = False,
    ) -> None:
        """Asks for a lookup if one is due."""
        if not regexes or self._asked is not None:
            return
        resolved = self._state.resolved
        last_ms = next(iter(resolved.values())).timestamp_ms if resolved else -inf
        if now_ms <= last_ms + _REFRESH_INTERVAL_MS_MIN:
            return
        if (
            must
            or len(regexes) != len(resolved)
            or self._version != self._topics.version
            or now_ms > last_ms + settings.consumer_regex_refresh_interval_ms
        ):
            self._asked = frozenset(regexes)
            self._describable = describable

    def resolve(self, now_ms: int) -> list[Record]:
        """Does the lookup that was asked for; raises the group's epoch if the result is new."""
        assert self._asked is not None
        state, topics = self._state, self._topics
        counts = dict(state.topics)
        records: list[Record] = []
        changed = False
        for name in sorted(self._asked):
            if name not in state.regexes:
                continue  # its last member has left in the meantime
            found = _matching(name, topics.names)
            if self._describable is not None:
                found = frozenset(self._describable(found))
            before = state.resolved[name].topics if name in state.resolved else frozenset()
            if before != found:
                changed = True
                count_regex(counts, before, -1)
                count_regex(counts, found, 1)
            records.append(regex_record(state.id, name, found, topics.version, now_ms))
        hashed = topics.hash(counts)
        if changed or hashed != state.metadata_hash:
            records.append(group_epoch_record(state.id, state.epoch + 1, hashed))
        self._asked, self._describable, self._version = None, None, topics.version
        return records


def _check(name: str) -> None:
    try:
        Pattern(name)
    except PatternError as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{name}` is not a valid regular expression: {error}.",
        ) from None


def _matching(name: str, topics: Iterable[str]) -> frozenset[str]:
    try:
        return Pattern(name).matching(topics)
    except PatternError:
        return frozenset()  # accepted by another coordinator
