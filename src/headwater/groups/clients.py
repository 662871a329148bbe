"""The clients of groups, and the lines of the node's log that speak of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Clients are asked for no more (KIP-800).
_REASON_LENGTH_MAX = 255


def reason_given(reason: str | None) -> str:
    """Returns the reason that a client gave, in parentheses, for a line of the node's log."""
    return f" ({reason[:_REASON_LENGTH_MAX]!r})" if reason else ""


def removed(group_id: str, member_ids: Sequence[str], why: str) -> str:
    """Returns the line for the node's log when the coordinator removes members."""
    others = f" and {len(member_ids) - 1} more" if len(member_ids) > 1 else ""
    return f"group {group_id}: removed {member_ids[0]}{others}: {why}"


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """The sender of a request: its client id, and its host as groups show it (`/127.0.0.1`)."""

    client_id: str
    host: str
