"""Describing quotas."""

from __future__ import annotations

from headwater.protocol.schema import Float64, Int8, Int16, Int32, Message, message


@message(api=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasRequest(Message):
    """Asks for the quotas whose entities match a filter."""

    components: list[ComponentData] = []
    strict: bool


class ComponentData(Message):
    """One of the `components` of `DescribeClientQuotasRequest`."""

    entity_type: str
    match_type: Int8
    match: str | None


@message(api=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasResponse(Message):
    """The quotas."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = []


class EntryData(Message):
    """One of the `entries` of `DescribeClientQuotasResponse`."""

    entity: list[EntityData] = []
    values: list[ValueData] = []


class EntityData(Message):
    """One of the `entity` of `EntryData`."""

    entity_type: str = ""
    entity_name: str | None = ""


class ValueData(Message):
    """One of the `values` of `EntryData`."""

    key: str = ""
    value: Float64 = 0.0
