"""UpdateFeatures: the cluster as a whole starts, or stops, to use what all its nodes know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.controller.features import FeatureUpdate, UpgradeType
from headwater.errors import ApiError
from headwater.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


async def handle(
    broker: Broker, context: Context, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    updates = [
        FeatureUpdate(
            key.feature,
            key.max_version_level,
            UpgradeType.SAFE_DOWNGRADE if key.allow_downgrade else key.upgrade_type,
        )
        for key in request.feature_updates
    ]
    try:
        await broker.controller.ask(
            lambda controller: controller.decide_update_features(
                updates, validate_only=request.validate_only
            )
        )
    except ApiError as refusal:
        return UpdateFeaturesResponse(error_code=refusal.code, error_message=refusal.message)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=update.name, error_message=None) for update in updates
        ],
    )
