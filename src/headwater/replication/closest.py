"""Chooses the replica that a consumer reads: the leader, or one in its rack (KIP-392)."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.replication.leader import LeaderState


def closest_replica(
    leader: LeaderState, racks: Mapping[int, str | None], *, rack: str, offset: int
) -> int | None:
    """Returns the replica in the consumer's rack from which to read at `offset`: in sync, and the
    furthest of them. None means the leader. `racks` has the brokers that the consumer can reach."""
    if racks.get(leader.node_id) == rack:
        return None
    candidates = [
        (follower.log_end, follower.caught_up_at, node)
        for node in leader.isr
        if racks.get(node) == rack
        and (follower := leader.followers.get(node)) is not None
        and follower.log_start <= offset <= follower.log_end
    ]
    return max(candidates)[-1] if candidates else None
