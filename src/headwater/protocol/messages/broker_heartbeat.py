"""Heartbeats of a broker to the controller."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Int64, Message, Uuid, message, tag


@message(api=63, versions=(0, 2), flexible=0)
class BrokerHeartbeatRequest(Message):
    """Keeps a broker's session alive, and says how far it has read the metadata log."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: Annotated[list[Uuid], tag(0, since=1)] = []
    cordoned_log_dirs: Annotated[list[Uuid] | None, tag(1, since=2)] = None


@message(api=63, versions=(0, 2), flexible=0)
class BrokerHeartbeatResponse(Message):
    """Tells a broker if it is fenced, and if it may shut down."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
