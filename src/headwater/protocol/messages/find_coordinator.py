"""Finding the broker that coordinates a group, a transaction or a share partition."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Message, ignorable, message, since, until


@message(api=10, versions=(0, 6), flexible=3)
class FindCoordinatorRequest(Message):
    """Asks for the coordinators of groups or transactional ids."""

    key: Annotated[str, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[list[str], since(4)] = []


@message(api=10, versions=(0, 6), flexible=3)
class FindCoordinatorResponse(Message):
    """The coordinator of each key."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[str | None, since(1), until(3), ignorable] = ""
    node_id: Annotated[Int32, until(3)] = 0
    host: Annotated[str, until(3)] = ""
    port: Annotated[Int32, until(3)] = 0
    coordinators: Annotated[list[Coordinator], since(4)] = []


class Coordinator(Message):
    """One of the `coordinators` of `FindCoordinatorResponse`."""

    key: str = ""
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, ignorable] = ""
