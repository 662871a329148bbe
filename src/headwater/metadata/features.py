"""Feature levels: those finalized in a cluster, and those that this release supports.

Finalized levels are in the metadata log, supported ranges in the code. The table is that of Kafka
4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"
TRANSACTION_VERSION = "transaction.version"

# Levels of metadata.version from which something is written or refused.
LEVEL_MINIMUM = 7  # 3.3-IV3
LEVEL_LATEST = 30  # 4.3-IV0
LEVEL_MIGRATION = 8  # 3.4-IV0: RegisterBrokerRecord 2
LEVEL_SCRAM = 11  # 3.5-IV2
LEVEL_TOKENS = 14  # 3.6-IV2
LEVEL_TRANSACTIONS = 13  # 3.6-IV1: metadata transactions
LEVEL_NO_EPOCH_BUMP_ON_SHRINK = 12  # 3.6-IV0
LEVEL_CONTROLLER_REGISTRATION = 15  # 3.7-IV0
LEVEL_DIRECTORIES = 17  # 3.7-IV2
LEVEL_ELR = 23  # 4.0-IV1
LEVEL_CORDONED_DIRECTORIES = 30  # 4.3-IV0

# Levels that added records or fields, which a downgrade would lose.
_LEVELS_THAT_CHANGED_METADATA = frozenset({8, 11, 13, 14, 15, 17, 23, 30})


# The names of metadata.version, from the lowest level on.
_NUMBER_OF_LEVELS = {
    "3.3": 1,
    "3.4": 1,
    "3.5": 3,
    "3.6": 3,
    "3.7": 5,
    "3.8": 1,
    "3.9": 1,
    "4.0": 4,
    "4.1": 2,
    "4.2": 2,
    "4.3": 1,
}
_RELEASES = tuple(
    # Of 3.3 only the last one is supported.
    f"{release}-IV{3 if release == '3.3' else number}"
    for release, count in _NUMBER_OF_LEVELS.items()
    for number in range(count)
)
assert len(_RELEASES) == LEVEL_LATEST - LEVEL_MINIMUM + 1


def release_of_level(level: int) -> str:
    """Returns the name of a level of metadata.version, such as 4.3-IV0."""
    return _RELEASES[level - LEVEL_MINIMUM]


def level_of_release(text: str) -> int | None:
    """Returns the metadata.version of a release: 4.0-IV1, or 4.0 and 4.0.2 for the last level of
    that release. Returns None for an unknown one."""
    wanted = ".".join(text.strip().split(".")[:2])
    found = [
        level
        for level, name in enumerate(_RELEASES, LEVEL_MINIMUM)
        if wanted in (name, name.partition("-")[0])
    ]
    return found[-1] if found else None


class LevelRange(NamedTuple):
    low: int
    high: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.low <= level <= self.high


class Feature(NamedTuple):
    name: str
    supported: LevelRange
    default_since: tuple[
        tuple[int, int], ...
    ]  # (level, metadata.version from which it is the default)
    needs: tuple[tuple[int, str, int], ...] = ()  # (level, other feature, its minimum level)

    def default_level(self, metadata_version: int) -> int:
        return max((lv for lv, since in self.default_since if since <= metadata_version), default=0)


FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature(METADATA_VERSION, LevelRange(LEVEL_MINIMUM, LEVEL_LATEST), ()),
        Feature(
            ELIGIBLE_LEADER_REPLICAS, LevelRange(0, 1), ((1, 26),), ((1, METADATA_VERSION, 23),)
        ),
        Feature("group.version", LevelRange(0, 1), ((1, 22),)),
        Feature(KRAFT_VERSION, LevelRange(0, 1), ()),
        Feature("share.version", LevelRange(0, 1), ((1, 28),)),
        Feature("streams.version", LevelRange(0, 1), ((1, 29),)),
        Feature(TRANSACTION_VERSION, LevelRange(0, 2), ((1, 24), (2, 24))),
    )
}


def supported_features() -> dict[str, LevelRange]:
    return {name: feature.supported for name, feature in FEATURES.items()}


def unsupported_level(levels: Mapping[str, int]) -> str | None:
    """Returns which of the finalized levels this release does not support, or None."""
    for name, level in levels.items():
        feature = FEATURES.get(name)
        supported = LevelRange(0, 0) if feature is None else feature.supported
        if level not in supported:
            return (
                f"the cluster is at {name} {level}, and this release supports {supported.low} to "
                f"{supported.high}"
            )
    return None


def default_levels(metadata_version: int = LEVEL_LATEST) -> dict[str, int]:
    """Returns the initial levels of a cluster: metadata.version first, then by name, without
    zeros."""
    levels = {METADATA_VERSION: metadata_version}
    for name in sorted(FEATURES):
        if name not in (METADATA_VERSION, KRAFT_VERSION):
            level = FEATURES[name].default_level(metadata_version)
            if level:
                levels[name] = level
    return levels


def unmet_need(name: str, level: int, levels: dict[str, int]) -> str | None:
    """Returns which requirement of this level `levels` does not meet, or None."""
    for at, other, least in FEATURES[name].needs:
        if level >= at and levels.get(other, 0) < least:
            return f"{name} {level} needs {other} of at least {least}, not {levels.get(other, 0)}"
    return None


def downgrade_loses_metadata(*, current: int, target: int) -> bool:
    return any(target < level <= current for level in _LEVELS_THAT_CHANGED_METADATA)
