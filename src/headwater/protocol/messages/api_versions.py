"""Finding out what a node speaks: the first request on most connections."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Int64, Message, ignorable, message, since, tag


@message(api=18, versions=(0, 5), flexible=3)
class ApiVersionsRequest(Message):
    """Asks for the supported versions, and names the client's software."""

    client_software_name: Annotated[str, since(3), ignorable] = ""
    client_software_version: Annotated[str, since(3), ignorable] = ""
    cluster_id: Annotated[str | None, since(5), ignorable] = None
    node_id: Annotated[Int32, since(5), ignorable] = -1


@message(api=18, versions=(0, 5), flexible=3)
class ApiVersionsResponse(Message):
    """The APIs with their versions, and the features of the cluster."""

    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    supported_features: Annotated[list[SupportedFeatureKey], tag(0, since=3), ignorable] = []
    finalized_features_epoch: Annotated[Int64, tag(1, since=3), ignorable] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], tag(2, since=3), ignorable] = []
    zk_migration_ready: Annotated[bool, tag(3, since=3), ignorable] = False


class ApiVersion(Message):
    """An API and its versions."""

    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Message):
    """A feature and the levels the node could work at."""

    name: str = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Message):
    """A feature and the level the cluster works at."""

    name: str = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0
