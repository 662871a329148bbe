"""UpdateFeatures: the cluster as a whole starts, or stops, to use what all its nodes know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.controller.features import FeatureUpdate, UpgradeType
from headwater.errors import ApiError
from headwater.metadata.features import KRAFT_VERSION
from headwater.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    updates = [
        FeatureUpdate(
            key.feature,
            key.max_version_level,
            UpgradeType.SAFE_DOWNGRADE if key.allow_downgrade else key.upgrade_type,
        )
        for key in request.feature_updates
    ]
    # kraft.version belongs to the quorum, not the controller: its level is not in the image.
    kraft_version = role.metadata.kraft_version
    levels = [update.level for update in updates if update.name == KRAFT_VERSION]
    try:
        check_cluster(role, context, Operation.ALTER)
        role.check_active()
        if max(levels, default=0) > kraft_version:
            # All are checked before the first takes effect: they stand or fall together.
            await _decide(role, updates, kraft_version, validate_only=True)
            await role.voter_changes.make_dynamic(validate_only=request.validate_only)
        await _decide(role, updates, kraft_version, validate_only=request.validate_only)
        if levels:
            await role.metadata.all_committed()
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=update.name, error_message="NONE") for update in updates
        ],
    )


async def _decide(
    role: ControllerRole, updates: list[FeatureUpdate], kraft_version: int, *, validate_only: bool
) -> None:
    await role.controller.ask(
        lambda controller: controller.decide_update_features(
            updates, validate_only=validate_only, kraft_version=kraft_version
        )
    )


def refuse(
    context: Context, request: UpdateFeaturesRequest, refusal: ApiError
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=refusal.code, error_message=refusal.message)
