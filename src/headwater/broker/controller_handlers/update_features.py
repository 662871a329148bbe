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


_DYNAMIC = 1  # the level of kraft.version from which the log lists the voters


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
    current = role.metadata.kraft_version
    as_it_is = (KRAFT_VERSION, current)
    makes_dynamic = (KRAFT_VERSION, _DYNAMIC) in [(each.name, each.level) for each in updates]
    makes_dynamic = makes_dynamic and current < _DYNAMIC
    for_controller = [
        update
        for update in updates
        if (update.name, update.level) != as_it_is
        and not (makes_dynamic and update.name == KRAFT_VERSION)
    ]
    try:
        if makes_dynamic:
            role.check_active()
            await role.voter_changes.make_dynamic(validate_only=request.validate_only)
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
