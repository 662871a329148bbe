"""Features: the levels that the cluster uses and supports, and changing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from headwater.client.admin.results import check, outcome
from headwater.client.errors import ClientError
from headwater.protocol.messages.api_versions import ApiVersionsRequest
from headwater.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

if TYPE_CHECKING:
    from headwater.client.admin import Admin

_KINDS_SINCE = 1  # before this version an update is either safe or not


class Levels(NamedTuple):
    """A range of levels, both ends included."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a cluster: `finalized` levels are in use, `supported` are those of the node
    that was asked."""

    finalized: Mapping[str, Levels] = field(default_factory=dict)
    supported: Mapping[str, Levels] = field(default_factory=dict)
    epoch: int | None = None


class UpgradeType(IntEnum):
    """The direction in which a level may change."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3  # data that the lower level does not know is lost


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The new level of a feature; 0 disables it."""

    level: int
    type: UpgradeType = UpgradeType.UPGRADE


async def describe_features(
    admin: Admin, *, node_id: int | None = None, timeout_ms: int | None = None
) -> Features:
    """Returns the features as one node, or any, reports them."""
    request = ApiVersionsRequest(client_software_name="headwater", client_software_version="1")
    answer = await admin._router.anyone(request, node_id=node_id, timeout_ms=timeout_ms)
    check(answer.error_code, "the features")
    return Features(
        finalized={
            each.name: Levels(each.min_version_level, each.max_version_level)
            for each in answer.finalized_features
        },
        supported={
            each.name: Levels(each.min_version, each.max_version)
            for each in answer.supported_features
        },
        epoch=None if answer.finalized_features_epoch < 0 else answer.finalized_features_epoch,
    )


async def update_features(
    admin: Admin,
    updates: Mapping[str, int | FeatureUpdate],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> dict[str, ClientError | None]:
    """Changes the levels of features: all of them, or none. Returns the error of each, or None."""
    wanted = {
        name: FeatureUpdate(to) if isinstance(to, int) else to for name, to in updates.items()
    }
    deadline = admin._router.deadline(timeout_ms)
    request = UpdateFeaturesRequest(
        timeout_ms=admin._router.left_ms(deadline),
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=to.level, upgrade_type=to.type)
            for name, to in wanted.items()
        ],
        validate_only=validate_only,
    )
    answer = await admin._router.controller(request, timeout_ms=timeout_ms, at_least=_KINDS_SINCE)
    what = f"features {', '.join(wanted)}"
    if not answer.results:  # since version 2 all of them share their fate
        return dict.fromkeys(wanted, outcome(answer.error_code, what, answer.error_message))
    check(answer.error_code, what, answer.error_message)
    return {
        each.feature: outcome(each.error_code, f"feature {each.feature}", each.error_message)
        for each in answer.results
    }
