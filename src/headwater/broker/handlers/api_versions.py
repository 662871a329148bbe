"""ApiVersions: what this node speaks, and the features of the cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.errors import ErrorCode
from headwater.metadata.features import KRAFT_VERSION, supported_features
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.controller_role import ControllerRole

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    node: Broker | ControllerRole, context: Context, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    if context.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.software = (name, version)
    # KAFKA-17011: clients that speak less than version 4 fall over a feature that starts at 0.
    lowest = 0 if context.version >= 4 else 1
    finalized = dict(node.image.features)
    if node.metadata.kraft_version:  # it belongs to the quorum and is not in the image
        finalized[KRAFT_VERSION] = node.metadata.kraft_version
    return ApiVersionsResponse(
        api_keys=_ranges(node.served),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=levels.low, max_version=levels.high)
            for name, levels in supported_features().items()
            if levels.low >= lowest
        ],
        finalized_features_epoch=node.metadata.applied - 1,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized.items()
        ],
    )


def _ranges(served: dict[int, tuple[int, int]]) -> list[ApiVersion]:
    return [
        # Only Produce 3 and later is served; some versions of librdkafka stop using idempotence
        # and more unless a broker says 0 (KAFKA-18659).
        ApiVersion(api_key=key, min_version=0 if key == ApiKey.PRODUCE else low, max_version=high)
        for key, (low, high) in served.items()
    ]


def answer_unknown_version(served: dict[int, tuple[int, int]]) -> ApiVersionsResponse:
    """For a client from the future: try again with one of these."""
    low, high = served[ApiKey.API_VERSIONS]
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=low, max_version=high)],
    )
