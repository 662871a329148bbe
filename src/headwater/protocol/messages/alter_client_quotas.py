"""AlterClientQuotas (key 49)."""

from __future__ import annotations

from headwater.protocol.schema import Float64, Int16, Int32, Message, message


@message(api=49, versions=(0, 1), flexible=1)
class AlterClientQuotasRequest(Message):
    """The message `AlterClientQuotasRequest`."""

    entries: list[AlterClientQuotasRequestEntryData] = []
    validate_only: bool


class AlterClientQuotasRequestEntryData(Message):
    """A part of `AlterClientQuotasRequest`."""

    entity: list[AlterClientQuotasRequestEntityData] = []
    ops: list[OpData] = []


class AlterClientQuotasRequestEntityData(Message):
    """A part of `AlterClientQuotasRequest`."""

    entity_type: str
    entity_name: str | None


class OpData(Message):
    """A part of `AlterClientQuotasRequest`."""

    key: str
    value: Float64
    remove: bool


@message(api=49, versions=(0, 1), flexible=1)
class AlterClientQuotasResponse(Message):
    """The message `AlterClientQuotasResponse`."""

    throttle_time_ms: Int32 = 0
    entries: list[AlterClientQuotasResponseEntryData] = []


class AlterClientQuotasResponseEntryData(Message):
    """A part of `AlterClientQuotasResponse`."""

    error_code: Int16 = 0
    error_message: str | None = ""
    entity: list[AlterClientQuotasResponseEntityData] = []


class AlterClientQuotasResponseEntityData(Message):
    """A part of `AlterClientQuotasResponse`."""

    entity_type: str = ""
    entity_name: str | None = ""
