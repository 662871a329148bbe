"""The content of `quorum-state`: one line of JSON, as Kafka writes it.

Version 1 goes with dynamic voters (kraft.version 1), version 0 with voters from the configuration.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from headwater.model import NO_NODE, ZERO_ID, id_from_text, id_text
from headwater.quorum.model import ElectionState, ReplicaKey


def encode_state(state: ElectionState, *, kraft_version: int, voters: Iterable[int] = ()) -> bytes:
    voted = state.voted or ReplicaKey(NO_NODE)
    content: dict[str, object]
    if kraft_version:
        content = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted.id,
            "votedDirectoryId": id_text(voted.directory_id),
            "data_version": 1,
        }
    else:
        content = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": voted.id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in voters],
            "data_version": 0,
        }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_state(data: bytes) -> ElectionState:
    """Raises ValueError for a malformed file: a voter that starts without its vote may vote
    twice."""
    try:
        content = json.loads(data)
        version = content["data_version"]
        if version not in (0, 1):
            raise ValueError(f"quorum-state has data_version {version}, expected 0 or 1")
        voted_id = int(content["votedId"])
        directory = id_from_text(content["votedDirectoryId"]) if version else ZERO_ID
        return ElectionState(
            epoch=int(content["leaderEpoch"]),
            leader_id=int(content["leaderId"]),
            voted=None if voted_id == NO_NODE else ReplicaKey(voted_id, directory),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"malformed quorum-state: {error!r}") from error
