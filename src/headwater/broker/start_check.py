"""Checks that a node may start, before anything is locked, formatted or written.

The checks only read. Directories that a start would damage, and settings that this release cannot
honour, are refused with one line, and the directories stay unchanged.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import NamedTuple

from headwater import _core
from headwater.broker.formatting import METADATA_LOG, FormatRefused
from headwater.config import NodeConfig
from headwater.config.support import check_bootstraps_itself, check_supported
from headwater.io import Disk, Host
from headwater.metadata import Replay, ResourceType
from headwater.metadata.batches import MetadataBatch, decode_batches
from headwater.metadata.snapshot import file_name, id_from_file_name
from headwater.protocol import DecodeError
from headwater.protocol.records.quorum import VotersRecord
from headwater.storage import names
from headwater.storage.log_dirs import DirectoryRefused, read_meta_properties

_TIERED = "remote.storage.enable"
_QUORUM_STATE = "quorum-state"


def check_start(host: Host, config: NodeConfig) -> None:
    """Raises ConfigError, FormatRefused or DirectoryRefused if this node must not start."""
    check_supported(config)
    path = config.metadata_log_dir
    with contextlib.suppress(OSError, DecodeError):  # the start itself reports what it cannot read
        if not host.disk.exists(path) or read_meta_properties(host.disk, path) is None:
            _check_unformatted(config, is_volatile=host.is_volatile)
            return
        found = _Files.of(host.disk, f"{path}/{METADATA_LOG}")
        _check_voters(config, found)
        _check_tiered(path, found)


def _check_unformatted(config: NodeConfig, *, is_volatile: bool) -> None:
    if config.alone:
        return
    if is_volatile:
        # A disk in memory is always new, and no other node can have been formatted with it.
        check_bootstraps_itself(config)
        return
    # As with Kafka, a node that was given a quorum never formats itself, not even where it is the
    # only voter: an empty directory may be a disk that was not mounted or the wrong path, and a
    # fresh cluster id would split the node from the data it belongs to.
    raise FormatRefused(
        f"{config.metadata_log_dir} is not formatted, and a node whose settings name a quorum does "
        "not format itself; run `headwater format` with the same settings first"
    )


def _check_voters(config: NodeConfig, found: _Files) -> None:
    voters = found.voters()
    if voters is None:
        if config.controller_quorum_bootstrap_servers and not config.controller_quorum_voters:
            raise DirectoryRefused(
                f"the metadata log in {config.metadata_log_dir} does not say who votes; set "
                f"controller.quorum.voters as it was before, or format a new directory"
            )
        return
    if len(voters) == 1 and voters != {config.node_id}:
        raise DirectoryRefused(
            f"{config.metadata_log_dir} belongs to node {min(voters)}, and this is node "
            f"{config.node_id}; set node.id={min(voters)} or use another directory"
        )
    if voters != {config.node_id}:
        raise DirectoryRefused(
            f"{config.metadata_log_dir} belongs to a quorum of nodes "
            f"{', '.join(map(str, sorted(voters)))}, and a quorum of several nodes is not "
            "supported yet; start it with Kafka"
        )


def _check_tiered(path: str, found: _Files) -> None:
    topics = found.tiered_topics()
    if topics:
        # Recovery would take the local start of a log for its start; Kafka would then delete the
        # segments in the remote store as expired.
        raise DirectoryRefused(
            f"{path} has topics with tiered storage ({_TIERED}=true): {', '.join(topics)}; tiered "
            "storage is not supported yet, and serving them here would lose what is in the remote "
            "store; start it with Kafka"
        )


class _Files(NamedTuple):
    """The relevant files of a metadata log: the latest snapshot and the segments after it."""

    disk: Disk
    path: str
    snapshot: bytes
    snapshot_offset: int
    segments: list[bytes]

    @classmethod
    def of(cls, disk: Disk, path: str) -> _Files:
        listed = disk.list(path) if disk.exists(path) else []
        ids = sorted(found for name in listed if (found := id_from_file_name(name)) is not None)
        offset = ids[-1].offset if ids else 0
        bases = sorted(
            base
            for name in listed
            if name.endswith(names.LOG) and (base := names.offset_of(name)) is not None
        )
        wanted = [
            base
            for number, base in enumerate(bases, 1)
            if number == len(bases) or bases[number] > offset
        ]
        return cls(
            disk,
            path,
            disk.read(f"{path}/{file_name(ids[-1])}") if ids else b"",
            offset,
            [disk.read(f"{path}/{names.offset_name(base, names.LOG)}") for base in wanted],
        )

    def voters(self) -> set[int] | None:
        """Returns the ids of the voters, or None where only the configuration names them."""
        found: set[int] | None = None
        for batch in self._control_batches():
            for record in batch.records:
                if isinstance(record, VotersRecord):
                    found = {voter.voter_id for voter in record.voters}
        return found if found is not None else self._voters_of_state()

    def _voters_of_state(self) -> set[int] | None:
        """Returns the voters in `quorum-state`, which lists them where the configuration named
        them."""
        file = f"{self.path}/{_QUORUM_STATE}"
        if not self.disk.exists(file):
            return None
        with contextlib.suppress(ValueError, KeyError, TypeError):
            voters = json.loads(self.disk.read(file)).get("currentVoters")
            return {int(voter["voterId"]) for voter in voters} if voters else None
        return None

    def _control_batches(self) -> Iterator[MetadataBatch]:
        for data in (self.snapshot, *self.segments):
            headers, _, _ = _core.scan(data)
            view = memoryview(data)
            for header in headers:
                if header.is_control:
                    yield from decode_batches(view[header.position : header.position + header.size])

    def tiered_topics(self) -> list[str]:
        """Returns the topics that have tiered storage, in order."""
        if not any(_TIERED.encode() in data for data in (self.snapshot, *self.segments)):
            return []  # the usual case; nothing needs to be decoded
        replay = Replay()
        for data in (self.snapshot, *self.segments):
            whole = _core.scan(data)[1]
            for batch in decode_batches(memoryview(data)[:whole]):
                is_old = data is not self.snapshot and batch.base_offset < self.snapshot_offset
                if not batch.is_control and not is_old:
                    replay.apply(batch.records)
        return sorted(
            resource.name
            for resource, configs in replay.image.configs.items()
            if resource.type == ResourceType.TOPIC
            and configs.get(_TIERED, "").strip().lower() == "true"
        )
