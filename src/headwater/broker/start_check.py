"""Checks that a node may start, before anything is locked, formatted or written.

The checks only read. Directories that a start would damage, and settings that this release cannot
honour, are refused with one line, and the directories stay unchanged.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headwater import _core
from headwater.broker.formatting import (
    METADATA_LOG,
    FormatRefused,
    check_directories,
    directories_of,
)
from headwater.config import NodeConfig
from headwater.config.support import check_supported
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
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def check_start(host: Host, config: NodeConfig) -> None:
    """Raises ConfigError, FormatRefused or DirectoryRefused if this node must not start."""
    check_supported(config)
    path = config.metadata_log_dir
    if not host.is_volatile:
        _check_directories(host.disk, config)
    with contextlib.suppress(OSError, DecodeError):  # the start itself reports what it cannot read
        if not host.disk.exists(path) or read_meta_properties(host.disk, path) is None:
            _check_unformatted(config, is_volatile=host.is_volatile)
            return
        found = _Files.of(host.disk, f"{path}/{METADATA_LOG}")
        _check_voters(config, found)
        _check_tiered(path, found)


def _check_directories(disk: Disk, config: NodeConfig) -> None:
    """Checks that the directories are the node's or empty. One that cannot be read is reported by
    the start itself, and may be offline."""
    readable = []
    for path in directories_of(config):
        with contextlib.suppress(OSError):
            if disk.exists(path):
                disk.list(path)
            readable.append(path)
    if readable and readable[0] == config.metadata_log_dir:
        check_directories(disk, readable)


def _check_unformatted(config: NodeConfig, *, is_volatile: bool) -> None:
    if config.alone or (is_volatile and _quorum_is_only(config)):
        return
    # As with Kafka, a node that was given a quorum never formats itself, not even where it is the
    # only voter: an empty directory may be a disk that was not mounted or the wrong path, and a
    # fresh cluster id would split the node from the data it belongs to. A disk in memory is always
    # new, so a node that is its own quorum may.
    raise FormatRefused(
        f"{config.metadata_log_dir} is not formatted, and a node whose settings name a quorum does "
        "not format itself; run `headwater format` with the same settings first"
    )


def _quorum_is_only(config: NodeConfig) -> bool:
    """Returns whether this node is certainly the only controller that its settings name."""
    own = {at.host.lower() for at in (*config.listeners, *config.advertised_listeners)} | _LOOPBACK
    ports = {at.port for at in config.controller_listeners}
    named = [(at.host, at.port) for at in config.controller_quorum_voters]
    named += config.controller_quorum_bootstrap_servers
    return config.is_controller and all(
        host.lower() in own and port in ports for host, port in named
    )


def _check_voters(config: NodeConfig, found: _Files) -> None:
    path, node_id = config.metadata_log_dir, config.node_id
    voters = found.voters_in_log()
    if voters is None:
        _check_static_voters(config, found.voters_in_state())
        return
    if not config.alone:
        return  # one that does not vote follows the leader, and may be added to the voters
    if set(voters) == {node_id}:
        return
    if len(voters) == 1:
        (owner,) = voters
        raise DirectoryRefused(
            f"{path} belongs to node {owner}, and this is node {node_id}; set node.id={owner} or "
            "use another directory"
        )
    raise DirectoryRefused(
        f"{path} belongs to a quorum of nodes {_listed(voters)}, which the settings do not name; "
        f"set controller.quorum.bootstrap.servers={','.join(filter(None, voters.values()))}, "
        "controller.listener.names and listeners as they were before"
    )


def _check_static_voters(config: NodeConfig, recorded: set[int] | None) -> None:
    """Checks the voters that `quorum-state` lists against those of the settings."""
    configured = {at.node_id for at in config.controller_quorum_voters}
    if not recorded or recorded == configured or (config.alone and recorded == {config.node_id}):
        return
    if config.alone or configured:
        raise DirectoryRefused(
            f"{config.metadata_log_dir} belongs to a quorum of nodes {_listed(recorded)}, and "
            f"controller.quorum.voters names {_listed(configured) if configured else 'none'}; set "
            "it as it was before: the voters of a static quorum do not change"
        )
    raise DirectoryRefused(
        f"{config.metadata_log_dir} belongs to a static quorum of nodes {_listed(recorded)}, and "
        "the settings have only controller.quorum.bootstrap.servers; set controller.quorum.voters "
        "as it was before, until kraft.version is 1"
    )


def _listed(voters: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(voters)))


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

    def voters_in_log(self) -> dict[int, str] | None:
        """Returns the voters with their first address, or None where only the configuration names
        them."""
        found: dict[int, str] | None = None
        for batch in self._control_batches():
            for record in batch.records:
                if isinstance(record, VotersRecord):
                    found = {
                        voter.voter_id: next((f"{at.host}:{at.port}" for at in voter.endpoints), "")
                        for voter in record.voters
                    }
        return found

    def voters_in_state(self) -> set[int] | None:
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
