"""Formatting of log directories, as `kafka-storage format` does it.

A formatted directory has `meta.properties`, which identifies its node and cluster, and
`bootstrap.checkpoint`, the first records of a new cluster; the metadata directory of a voter also
lists the voters. Kafka can open directories formatted here, and the other way round.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from headwater.config import NodeConfig
from headwater.io import Disk, Host
from headwater.metadata.features import LEVEL_LATEST, default_levels
from headwater.metadata.snapshot import (
    BOOTSTRAP_ID,
    decode_snapshot,
    encode_snapshot,
    feature_records,
    file_name,
)
from headwater.model import METADATA_TOPIC, id_from_text, id_text
from headwater.protocol import Message
from headwater.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from headwater.storage.log_dirs import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)

BOOTSTRAP_FILE = "bootstrap.checkpoint"
METADATA_LOG = f"{METADATA_TOPIC}-0"


class FormatRefused(Exception):
    """Raised for directories that cannot be formatted. The message says why and what to do."""


class Formatted(NamedTuple):
    cluster_id: str
    directories: tuple[str, ...]  # those that were not formatted before


def directories_of(config: NodeConfig) -> list[str]:
    """Returns all directories of a node, that of the metadata log first."""
    return list(dict.fromkeys((config.metadata_log_dir, *config.log_dirs)))


def format_directories(
    host: Host,
    config: NodeConfig,
    *,
    cluster_id: str | None = None,
    metadata_version: int = LEVEL_LATEST,
    ignore_formatted: bool = True,
    offline: Container[str] = (),
) -> Formatted:
    """Formats the node's unformatted directories, except those that are offline. The caller holds
    their locks. Without `cluster_id`, uses that of the node's other directories, or a new one."""
    disk = host.disk
    paths = [path for path in directories_of(config) if path not in offline]
    found = {path: read_meta_properties(disk, path) for path in paths}
    cluster_id = _agreed_cluster_id(host, found, cluster_id)
    for path, properties in found.items():
        if properties is None:
            continue
        if not ignore_formatted:
            raise FormatRefused(f"{path} is already formatted; choose another directory")
        if properties.node_id != config.node_id:
            raise FormatRefused(
                f"{path} belongs to node {properties.node_id}, not to node {config.node_id}; "
                f"set node.id={properties.node_id}, or choose another directory"
            )
    missing = [path for path, properties in found.items() if properties is None]
    for path in missing:
        directory_id = host.random_id()
        _write_bootstrap(disk, path, metadata_version, host.clock.wall_ms())
        if path == config.metadata_log_dir and not config.controller_quorum_voters:
            voters = standalone_voters(config, directory_id)
            _write_voters(disk, f"{path}/{METADATA_LOG}", voters, host.clock.wall_ms())
        # Written last: it marks a directory as completely formatted.
        properties = MetaProperties(cluster_id, config.node_id, directory_id)
        write_meta_properties(disk, path, properties)
    return Formatted(cluster_id, tuple(missing))


def _agreed_cluster_id(
    host: Host, found: dict[str, MetaProperties | None], asked: str | None
) -> str:
    ids = {properties.cluster_id for properties in found.values() if properties is not None}
    if asked is not None:
        ids.add(asked)
    if len(ids) > 1:
        raise FormatRefused(
            f"the directories belong to different clusters: {', '.join(sorted(ids))}; "
            "choose directories of one cluster"
        )
    if ids:
        return ids.pop()
    return id_text(host.random_id())


def check_cluster_id(text: str) -> None:
    """Refuses a cluster id that Kafka's tools would not accept."""
    try:
        id_from_text(text)
    except ValueError as error:
        raise FormatRefused(f"cluster id {text!r}: {error}") from error


def standalone_voters(config: NodeConfig, directory_id: bytes) -> VoterSet:
    """Returns this node as the only voter, at its controller endpoints."""
    endpoints = tuple(
        VoterEndpoint(at.name, at.host or "localhost", at.port)
        for at in config.controller_endpoints
    )
    return VoterSet.of(Voter(ReplicaKey(config.node_id, directory_id), endpoints))


def read_bootstrap(disk: Disk, path: str) -> list[Message]:
    """Returns the first records of a new cluster, from the formatted directory; raises DecodeError
    if they cannot be read. They matter only while the log is empty."""
    file = f"{path}/{BOOTSTRAP_FILE}"
    if not disk.exists(file):
        return list(feature_records(default_levels()))
    return decode_snapshot(disk.read(file)).records


def _write_bootstrap(disk: Disk, path: str, metadata_version: int, now_ms: int) -> None:
    disk.make_dirs(path)
    records: Sequence[Message] = list(feature_records(default_levels(metadata_version)))
    data = encode_snapshot(
        records, metadata_version=metadata_version, epoch=0, timestamp=0, now_ms=now_ms
    )
    _write(disk, path, BOOTSTRAP_FILE, data)


def _write_voters(disk: Disk, path: str, voters: VoterSet, now_ms: int) -> None:
    disk.make_dirs(path)
    data = encode_snapshot(
        (),
        metadata_version=LEVEL_LATEST,
        epoch=0,
        timestamp=now_ms,
        now_ms=now_ms,
        kraft_version=1,
        voters=voters.to_record(),
    )
    _write(disk, path, file_name(BOOTSTRAP_ID), data)


def _write(disk: Disk, path: str, name: str, data: bytes) -> None:
    """Writes durably but not atomically: without `meta.properties` everything is written again."""
    file = disk.open(f"{path}/{name}", create=True)
    try:
        file.truncate(0)
        file.append(data)
        file.sync()
    finally:
        file.close()
    disk.sync_dir(path)
