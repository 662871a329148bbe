"""Policies: what an operator forbids beyond what would be valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Resource


class NewTopic(NamedTuple):
    """A topic as a request asks for it: with numbers, or with the replicas of each partition."""

    name: str
    partitions: int | None
    replication_factor: int | None
    assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str]


class PolicyRefused(ApiError):
    """A policy refuses one topic or resource; the others of the request are not affected."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.POLICY_VIOLATION, reason)


class Policies(NamedTuple):
    """Each raises PolicyRefused for what it does not allow; None allows everything."""

    on_new_topic: Callable[[NewTopic], None] | None = None
    on_alteration: Callable[[Resource, Mapping[str, str | None]], None] | None = None
