"""UpdateFeatures: the cluster as a whole starts, or stops, to use what all its nodes know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.controller.features import FeatureUpdate, UpgradeType
from headwater.errors import ApiError
from headwater.metadata.features import KRAFT_VERSION
from headwater.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

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
    # kraft.version belongs to the quorum, not the controller; only its current level is accepted.
    as_it_is = (KRAFT_VERSION, role.metadata.kraft_version)
    for_controller = [update for update in updates if (update.name, update.level) != as_it_is]
    try:
        await role.controller.ask(
            lambda controller: controller.decide_update_features(
                for_controller, validate_only=request.validate_only
            )
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=update.name, error_message="NONE") for update in updates
        ],
    )


def refuse(
    context: Context, request: UpdateFeaturesRequest, refusal: ApiError
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=refusal.code, error_message=refusal.message)
