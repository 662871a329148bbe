"""Changing quotas."""

from __future__ import annotations

from headwater.protocol.schema import Float64, Int16, Int32, Message, message


@message(api=49, versions=(0, 1), flexible=1)
class AlterClientQuotasRequest(Message):
    """Make these changes."""

    entries: list[AlterClientQuotasRequestEntryData] = []
    validate_only: bool


class AlterClientQuotasRequestEntryData(Message):
    """One of the `entries` of `AlterClientQuotasRequest`."""

    entity: list[AlterClientQuotasRequestEntityData] = []
    ops: list[OpData] = []


class AlterClientQuotasRequestEntityData(Message):
    """One of the `entity` of `AlterClientQuotasRequestEntryData`."""

    entity_type: str
    entity_name: str | None


class OpData(Message):
    """One of the `ops` of `AlterClientQuotasRequestEntryData`."""

    key: str
    value: Float64
    remove: bool


@message(api=49, versions=(0, 1), flexible=1)
class AlterClientQuotasResponse(Message):
    """The outcome for each entity."""

    throttle_time_ms: Int32 = 0
    entries: list[AlterClientQuotasResponseEntryData] = []


class AlterClientQuotasResponseEntryData(Message):
    """One of the `entries` of `AlterClientQuotasResponse`."""

    error_code: Int16 = 0
    error_message: str | None = ""
    entity: list[AlterClientQuotasResponseEntityData] = []


class AlterClientQuotasResponseEntityData(Message):
    """One of the `entity` of `AlterClientQuotasResponseEntryData`."""

    entity_type: str = ""
    entity_name: str | None = ""
