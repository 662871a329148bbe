"""Deleting topics."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
    Int16,
    Int32,
    Message,
    Uuid,
    ignorable,
    message,
    nullable,
    since,
    until,
)


@message(api=20, versions=(1, 6), flexible=4)
class DeleteTopicsRequest(Message):
    """Delete these topics, by name or by id."""

    topics: Annotated[list[DeleteTopicState], since(6)] = []
    topic_names: Annotated[list[str], until(5), ignorable] = []
    timeout_ms: Int32


class DeleteTopicState(Message):
    """One of the `topics` of `DeleteTopicsRequest`."""

    name: str | None = None
    topic_id: Uuid


@message(api=20, versions=(1, 6), flexible=4)
class DeleteTopicsResponse(Message):
    """The outcome for each topic."""

    throttle_time_ms: Annotated[Int32, ignorable] = 0
    responses: list[DeletableTopicResult] = []


class DeletableTopicResult(Message):
    """One of the `responses` of `DeleteTopicsResponse`."""

    name: Annotated[str | None, nullable(6)] = ""
    topic_id: Annotated[Uuid, since(6), ignorable] = ZERO_ID
    error_code: Int16 = 0
    error_message: Annotated[str | None, since(5), ignorable] = None
