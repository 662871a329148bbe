"""Changes of the quorum's voters (KIP-853), on the leader, one at a time.

A change is a VotersRecord in the metadata log. It counts as soon as it is in the log of a node, so
the next change must wait until it is committed: any two majorities of sets that differ by one voter
overlap, those of sets that differ by more need not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headwater.broker.metadata_log import MetadataLog
from headwater.config import NodeConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Address, Host
from headwater.metadata.features import KRAFT_VERSION
from headwater.model import NO_EPOCH, NO_NODE, ZERO_ID
from headwater.net.peer import PeerError, PeerSource, as_is, connect, no_security
from headwater.observability import Log as Lines
from headwater.protocol.records.quorum import KRaftVersionRecord
from headwater.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet

_CATCH_UP_POLL_SECONDS = 0.05
_DYNAMIC = 1  # the kraft.version from which the log lists the voters


class VoterChanges:
    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        metadata: MetadataLog,
        lines: Lines,
        security: PeerSource = no_security,
    ) -> None:
        self._host = host
        self._security = security
        self._config = config
        self._metadata = metadata
        self._lines = lines
        self._under_way = False
        # What static voters have told about themselves in an epoch, for the change to dynamic ones.
        self._told: dict[int, Voter] = {}
        self._told_in = NO_EPOCH

    # Adding and removing

    async def add(
        self,
        key: ReplicaKey,
        endpoints: Sequence[VoterEndpoint],
        *,
        timeout_ms: int,
        ack_when_committed: bool,
    ) -> None:
        """Adds a voter once it has caught up with the log. Raises ApiError if that is refused."""
        _check_key(key)
        if not any(at.name in self._config.controller_listener_names for at in endpoints):
            names = ", ".join(self._config.controller_listener_names)
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"node {key.id} has no endpoint for the controller listener {names}",
            )
        self._check_ready()
        if key.id in self._metadata.raft.voters.voters:
            raise ApiError(ErrorCode.DUPLICATE_VOTER, f"node {key.id} is one of the voters already")
        self._under_way = True
        try:
            deadline = self._host.clock.monotonic() + timeout_ms / 1000
            versions = await self._kraft_versions(key, endpoints, timeout_ms)
            await self._until_caught_up(key, deadline)
            voter = Voter(key, tuple(endpoints), versions)
            voters = VoterSet(self._metadata.raft.voters.voters | {key.id: voter})
            end = self._metadata.append_controls([voters.to_record()])
            self._lines.info(f"node {key.id} becomes a voter")
            if ack_when_committed:
                await self._metadata.committed(end)
        finally:
            self._under_way = False

    async def remove(self, key: ReplicaKey) -> None:
        """Removes a voter. A leader that removes itself resigns when that is committed."""
        _check_key(key)
        self._check_ready()
        voters = self._metadata.raft.voters
        known = voters.voters.get(key.id)
        if known is None or known.key != key:
            raise ApiError(
                ErrorCode.VOTER_NOT_FOUND, f"node {key.id} is not a voter with this directory id"
            )
        if len(voters.voters) == 1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"node {key.id} is the only voter; add another first"
            )
        self._under_way = True
        try:
            left = VoterSet({i: voter for i, voter in voters.voters.items() if i != key.id})
            end = self._metadata.append_controls([left.to_record()])
            self._lines.info(f"node {key.id} is no longer a voter")
            await self._metadata.committed(end)
        finally:
            self._under_way = False
        if key.id == self._config.node_id:
            self._metadata.resign()

    async def update(
        self, key: ReplicaKey, endpoints: Sequence[VoterEndpoint], versions: tuple[int, int]
    ) -> None:
        """Takes the endpoints and versions that a voter has now."""
        voter = Voter(key, tuple(endpoints), versions)
        voters = self._metadata.raft.voters
        if not any(at.name in self._config.controller_listener_names for at in endpoints):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"node {key.id} has no controller endpoint")
        low, high = versions
        if not low <= self._metadata.kraft_version <= high:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"node {key.id} supports kraft.version {low} to {high}, the quorum is at "
                f"{self._metadata.kraft_version}",
            )
        if not voters.has(key):
            raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"node {key.id} is not a voter")
        if not self._metadata.kraft_version:
            self._told_this_epoch()[key.id] = voter
            return
        if voters.voters[key.id] == voter:
            return
        self._check_ready()
        changed = VoterSet(voters.voters | {key.id: voter})
        await self._metadata.committed(self._metadata.append_controls([changed.to_record()]))

    def _check_ready(self) -> None:
        metadata = self._metadata
        if not metadata.kraft_version:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "the voters are static (kraft.version 0); raise kraft.version to 1 first",
            )
        self._check_leads()

    def _check_leads(self) -> None:
        metadata = self._metadata
        if not metadata.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum")
        if self._under_way or not metadata.voters_are_committed:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is not committed yet"
            )

    async def _kraft_versions(
        self, key: ReplicaKey, endpoints: Sequence[VoterEndpoint], timeout_ms: int
    ) -> tuple[int, int]:
        """Asks the new voter which versions of the quorum's protocol it supports."""
        names = self._config.controller_listener_names
        at = next(at for at in endpoints if at.name in names)
        # Other changes wait meanwhile, so an address where nobody answers must not take long.
        timeout_ms = max(1, min(timeout_ms, self._config.controller_quorum_request_timeout_ms))
        try:
            connection = await connect(
                self._host,
                Address(at.host, at.port),
                node_id=NO_NODE,
                client_id=f"raft-client-{self._config.node_id}",
                timeout_ms=timeout_ms,
                request_timeout_ms=timeout_ms,
                as_error=as_is,
                security=self._security(),
            )
        except PeerError as error:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"node {key.id} cannot be reached: {error}"
            ) from None
        supported = connection.supported_features.get(KRAFT_VERSION, (0, 0))
        connection.close()
        if not supported[0] <= self._metadata.kraft_version <= supported[1]:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"node {key.id} supports kraft.version {supported[0]} to {supported[1]}, the "
                f"quorum is at {self._metadata.kraft_version}",
            )
        return supported

    async def _until_caught_up(self, key: ReplicaKey, deadline: float) -> None:
        """Waits until the node has what the log has now, so that its vote can be counted on."""
        wanted = self._metadata.log_end
        while True:
            progress = self._metadata.raft.progress
            if progress is None:
                raise ApiError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node no longer leads the quorum"
                )
            reached = progress.log_end_of(key)
            if reached is not None and reached >= wanted:
                return
            if self._host.clock.monotonic() >= deadline:
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"node {key.id} has not caught up with the metadata log: it is at "
                    f"{'no' if reached is None else reached} of {wanted}; is it running with this "
                    "directory?",
                )
            await asyncio.sleep(_CATCH_UP_POLL_SECONDS)

    # From static voters to dynamic ones

    def _told_this_epoch(self) -> dict[int, Voter]:
        """Returns what voters have told since this node leads. What they told before may not hold
        any more: a voter may have a new disk, of which another leader was told."""
        epoch = self._metadata.epoch
        if self._told_in != epoch:
            self._told, self._told_in = {}, epoch
        return self._told

    async def make_dynamic(self, *, validate_only: bool) -> None:
        """Raises kraft.version to 1: from here on the log lists the voters."""
        metadata = self._metadata
        self._check_leads()
        voters: dict[int, Voter] = {}
        for node_id in metadata.raft.voters.voters:
            voter = metadata.own_voter() if node_id == self._config.node_id else None
            voter = voter or self._told_this_epoch().get(node_id)
            if voter is None or voter.key.directory_id == ZERO_ID or voter.kraft_versions[1] < 1:
                raise ApiError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    f"node {node_id} has not told the leader its directory and versions; it must "
                    "be running and support kraft.version 1",
                )
            voters[node_id] = voter
        if validate_only:
            return
        record = KRaftVersionRecord(version=0, kraft_version=_DYNAMIC)
        end = metadata.append_controls([record, VoterSet(voters).to_record()])
        await metadata.committed(end)


def _check_key(key: ReplicaKey) -> None:
    if key.id < 0 or key.directory_id == ZERO_ID:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"node {key.id}: a voter has an id and a directory"
        )
