"""Raising or lowering the finalized features of the cluster."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Message, ignorable, message, since, until


@message(api=57, versions=(0, 2), flexible=0)
class UpdateFeaturesRequest(Message):
    """Bring these features to these levels."""

    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: Annotated[bool, since(1)] = False


class FeatureUpdateKey(Message):
    """One of the `feature_updates` of `UpdateFeaturesRequest`."""

    feature: str
    max_version_level: Int16
    allow_downgrade: Annotated[bool, until(0)] = False
    upgrade_type: Annotated[Int8, since(1)] = 1


@message(api=57, versions=(0, 2), flexible=0)
class UpdateFeaturesResponse(Message):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: Annotated[list[UpdatableFeatureResult], until(1), ignorable] = []


class UpdatableFeatureResult(Message):
    """One of the `results` of `UpdateFeaturesResponse`."""

    feature: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
