"""Formatting of log directories, as `kafka-storage format` does it.

A formatted directory has `meta.properties`, which identifies its node and cluster, and
`bootstrap.checkpoint`, the first records of a new cluster; the metadata directory of a voter also
lists the voters. Kafka can open directories formatted here, and the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from headwater.config import NodeConfig
from headwater.config.listeners import PORT_MAX, WILDCARDS
from headwater.io import Disk, Host
from headwater.metadata.features import (
    FEATURES,
    KRAFT_VERSION,
    LEVEL_LATEST,
    LEVEL_MINIMUM,
    METADATA_VERSION,
    default_levels,
    level_of_release,
    release_of_level,
    unmet_need,
)
from headwater.metadata.model import DIRECTORIES_RESERVED
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
from headwater.storage import names
from headwater.storage.log_dirs import (
    DirectoryRefused,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from headwater.storage.reserve import RESERVE

BOOTSTRAP_FILE = "bootstrap.checkpoint"
METADATA_LOG = f"{METADATA_TOPIC}-0"

# What a directory may have before it is formatted: traces of a format or of a start that was
# interrupted, checkpoints, and what the file system itself puts there.
_HARMLESS = frozenset(
    (
        names.LOCK,
        names.CLEAN_SHUTDOWN,
        names.RECOVERY_POINTS,
        names.LOG_STARTS,
        names.HIGH_WATERMARKS,
        names.CLEANER_OFFSETS,
        f"{names.META_PROPERTIES}.tmp",
        BOOTSTRAP_FILE,
        RESERVE,
        "lost+found",
    )
)
_SHOWN_MAX = 3


class FormatRefused(Exception):
    """Raised for directories that cannot be formatted. The message says why and what to do."""


class Formatted(NamedTuple):
    cluster_id: str
    directories: tuple[str, ...]  # those that were not formatted before


class InitialQuorum(NamedTuple):
    """The voters that a formatted metadata directory names: itself, those listed, or none.

    Without any, they come from `controller.quorum.voters` or from the leader.
    """

    standalone: bool = False
    listed: VoterSet | None = None


def directories_of(config: NodeConfig) -> list[str]:
    """Returns all directories of a node, that of the metadata log first."""
    return list(dict.fromkeys((config.metadata_log_dir, *config.log_dirs)))


def format_directories(
    host: Host,
    config: NodeConfig,
    *,
    cluster_id: str | None = None,
    levels: Mapping[str, int] | None = None,
    quorum: InitialQuorum | None = None,
    users: Sequence[Message] = (),
    ignore_formatted: bool = True,
    offline: Container[str] = (),
) -> Formatted:
    """Formats the node's unformatted directories, except those that are offline. The caller holds
    their locks. Without `cluster_id`, uses that of the node's other directories, or a new one;
    without `quorum`, a node that has no static voters is its only voter. `users` are records that
    a new cluster starts with."""
    disk = host.disk
    paths = [path for path in directories_of(config) if path not in offline]
    found = check_directories(disk, paths)
    cluster_id = _agreed_cluster_id(host, found, cluster_id)
    for path, properties in found.items():
        if properties is None:
            continue
        if not ignore_formatted:
            raise FormatRefused(
                f"{path} is already formatted; choose another directory, or skip those that are "
                "formatted with --ignore-formatted"
            )
        if properties.node_id != config.node_id:
            raise FormatRefused(
                f"{path} belongs to node {properties.node_id}, not to node {config.node_id}; "
                f"set node.id={properties.node_id}, or choose another directory"
            )
    if quorum is None:
        quorum = InitialQuorum(standalone=not config.controller_quorum_voters)
    missing = [path for path, properties in found.items() if properties is None]
    for path in missing:
        now_ms = host.clock.wall_ms()
        directory_id = host.random_id()
        first_levels = default_levels() if levels is None else levels
        _write_bootstrap(disk, path, first_levels, users, now_ms)
        if path == config.metadata_log_dir:
            voters = quorum.listed
            if quorum.standalone:
                voters = standalone_voters(host, config, directory_id)
            elif voters is not None and config.node_id in voters.voters:
                directory_id = voters.voters[config.node_id].key.directory_id
            if voters is not None:
                _write_voters(disk, f"{path}/{METADATA_LOG}", voters, now_ms)
        # Written last: it marks a directory as completely formatted.
        properties = MetaProperties(cluster_id, config.node_id, directory_id)
        write_meta_properties(disk, path, properties)
    return Formatted(cluster_id, tuple(missing))


def check_directories(disk: Disk, paths: Sequence[str]) -> dict[str, MetaProperties | None]:
    """Returns what identifies each directory, None if it is not formatted; the first is that of the
    metadata log. Refuses, before anything is written, directories that are something else than a
    node's, and ones with the same id."""
    found = {path: read_meta_properties(disk, path) for path in paths}
    owners: dict[bytes, str] = {}
    for path, properties in found.items():
        if properties is None:
            _check_is_unused(disk, path, is_first=found[paths[0]] is None)
            continue
        directory_id = properties.directory_id
        if directory_id is None:
            continue
        if directory_id in DIRECTORIES_RESERVED:
            raise DirectoryRefused(
                f"{path}: directory.id {id_text(directory_id)} in {names.META_PROPERTIES} is "
                "reserved; remove the line, and the directory gets a new one"
            )
        other = owners.setdefault(directory_id, path)
        if other != path:
            raise DirectoryRefused(
                f"{other} and {path} have the same directory.id ({id_text(directory_id)}), so one "
                "is a copy of the other; remove it from log.dirs"
            )
    return found


def _check_is_unused(disk: Disk, path: str, *, is_first: bool) -> None:
    """Refuses a directory that has files of somebody else, or a node's data without its
    identity. `is_first`: the node has no formatted directory yet."""
    if not disk.exists(path) or not disk.is_dir(path):
        return  # created by the lock, or reported by it
    logs: list[str] = []
    others: list[str] = []
    for name in disk.list(path):
        if name in _HARMLESS or (name == METADATA_LOG and not _is_log(disk, path, name)):
            continue  # the latter is from a format that was interrupted
        (logs if _is_log(disk, path, name) else others).append(name)
    if others:
        raise FormatRefused(
            f"{path} is not empty and does not belong to a node ({_some(others)}); choose an empty "
            "or a new directory"
        )
    # A further directory of an existing node may have logs: their topics are in the metadata.
    if logs and is_first:
        raise FormatRefused(
            f"{path} has data of a node ({_some(logs)}) and no {names.META_PROPERTIES}; restore "
            "that file from a backup, or choose an empty directory"
        )


def _is_log(disk: Disk, path: str, name: str) -> bool:
    if names.parse_dir_name(name) is None or not disk.is_dir(f"{path}/{name}"):
        return False
    files = disk.list(f"{path}/{name}")
    return names.PARTITION_METADATA in files or any(file.endswith(names.LOG) for file in files)


def _some(found: Sequence[str]) -> str:
    more = len(found) - _SHOWN_MAX
    return ", ".join(found[:_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def _agreed_cluster_id(
    host: Host, found: dict[str, MetaProperties | None], asked: str | None
) -> str:
    ids: dict[str, str] = {}  # with a directory of each
    for path, properties in found.items():
        if properties is not None:
            ids.setdefault(properties.cluster_id, path)
    if asked is not None and ids and set(ids) != {asked}:
        other, path = next((other, path) for other, path in ids.items() if other != asked)
        raise FormatRefused(
            f"{path} belongs to cluster {other}, not to {asked}; choose another directory, or the "
            f"cluster it belongs to"
        )
    if len(ids) > 1:
        raise FormatRefused(
            f"the directories belong to different clusters: {', '.join(sorted(ids))}; "
            "choose directories of one cluster"
        )
    if asked is not None:
        return asked
    return next(iter(ids)) if ids else id_text(host.random_id())


def check_cluster_id(text: str) -> None:
    """Refuses a cluster id that Kafka's tools would not accept."""
    try:
        id_from_text(text)
    except ValueError as error:
        raise FormatRefused(f"cluster id {text!r}: {error}") from error


def parse_voters(text: str, listener: str) -> VoterSet:
    """Parses `--initial-controllers`: id@host:port:directory,... at that controller listener."""
    voters: dict[int, Voter] = {}
    for item in (part.strip() for part in text.split(",")):
        match = _VOTER.fullmatch(item)
        if match is None or not 0 < int(match["port"]) <= PORT_MAX:
            raise FormatRefused(
                f"--initial-controllers {item}: expected id@host:port:directory-id, such as "
                "1@host1:9093:JEXY6aqzQY-32P5TStzaFg"
            )
        node_id = int(match["id"])
        if node_id in voters:
            raise FormatRefused(f"--initial-controllers {text}: node {node_id} is listed twice")
        try:
            key = ReplicaKey(node_id, id_from_text(match["directory"]))
        except ValueError as error:
            raise FormatRefused(
                f"--initial-controllers {item}: the directory id is not valid: {error}; "
                "`headwater format --random-uuid` prints a new one"
            ) from error
        if any(voter.key.directory_id == key.directory_id for voter in voters.values()):
            raise FormatRefused(
                f"--initial-controllers {text}: directory {match['directory']} is listed twice"
            )
        host = match["host"].strip("[]")
        voters[node_id] = Voter(key, (VoterEndpoint(listener, host, int(match["port"])),))
    return VoterSet(voters)


_VOTER = re.compile(
    r"(?P<id>\d+)@(?P<host>\[[^\]]+\]|[^:@\[\]]+):(?P<port>\d+):(?P<directory>[^:]+)"
)


def initial_levels(release: str | None, features: Sequence[str]) -> dict[str, int]:
    """Returns the first feature levels of a cluster, of `--release-version` and each `--feature
    name=level`. kraft.version is among them if it was given."""
    asked: dict[str, int] = {}
    for item in features:
        name, equals, number = item.partition("=")
        if not equals or not number.strip().isdigit():
            raise FormatRefused(f"--feature {item}: expected name=level, such as group.version=1")
        asked[name.strip()] = int(number)
    if METADATA_VERSION in asked and release is not None:
        raise FormatRefused(
            f"--release-version {release}: expected only one of this and --feature metadata.version"
        )
    level = asked.get(METADATA_VERSION, LEVEL_LATEST)
    if release is not None:
        found = level_of_release(release)
        if found is None:
            raise FormatRefused(
                f"--release-version {release}: expected {release_of_level(LEVEL_MINIMUM)} to "
                f"{release_of_level(LEVEL_LATEST)}"
            )
        level = found
    for name, value in asked.items():
        _check_level(name, value)
    levels = default_levels(level) | asked
    for name in asked:
        unmet = unmet_need(name, levels[name], levels)
        if unmet is not None:
            raise FormatRefused(f"--feature {name}={levels[name]}: {unmet}")
    return {name: value for name, value in levels.items() if value or name == KRAFT_VERSION}


def _check_level(name: str, level: int) -> None:
    feature = FEATURES.get(name)
    if feature is None:
        raise FormatRefused(f"--feature {name}={level}: expected one of {', '.join(FEATURES)}")
    if level not in feature.supported:
        low, high = feature.supported
        raise FormatRefused(f"--feature {name}={level}: expected a level from {low} to {high}")


def standalone_voters(host: Host, config: NodeConfig, directory_id: bytes) -> VoterSet:
    """Returns this node as the only voter, at its controller endpoints as others reach them."""
    name = host.network.host_name
    endpoints = tuple(
        VoterEndpoint(at.name, name() if at.host in WILDCARDS else at.host, at.port)
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


def _write_bootstrap(
    disk: Disk, path: str, levels: Mapping[str, int], users: Sequence[Message], now_ms: int
) -> None:
    disk.make_dirs(path)
    data = encode_snapshot(
        [*feature_records(dict(levels)), *users],
        metadata_version=levels[METADATA_VERSION],
        epoch=0,
        timestamp=0,
        now_ms=now_ms,
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
