"""A controller's registration (KIP-919): where it listens, and which features it supports.

The active controller registers itself when it becomes active. The others ask it to, once they know
that the cluster does not have this run of theirs: features are raised only to levels that every
registered controller supports.
"""

from __future__ import annotations

import asyncio

from headwater.broker.controller_channel import ControllerChannel
from headwater.broker.controller_driver import ControllerDriver
from headwater.broker.metadata_log import MetadataLog
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Delta, Image
from headwater.metadata.features import LEVEL_CONTROLLER_REGISTRATION
from headwater.observability import Log as Lines

_TIMEOUT_MS = 10_000
_PAUSE_SECONDS = 1.0


class ControllerMembership:
    def __init__(
        self,
        node_id: int,
        channel: ControllerChannel,
        metadata: MetadataLog,
        controller: ControllerDriver,
        lines: Lines,
    ) -> None:
        self._node_id = node_id
        self._channel = channel
        self._metadata = metadata
        self._controller = controller
        self._lines = lines
        self._changed = asyncio.Event()
        metadata.subscribe(self._follow)

    def _follow(self, image: Image, delta: Delta) -> None:
        if delta.features or delta.controllers:
            self._changed.set()

    async def run(self) -> None:
        """Keeps this controller registered until it is cancelled."""
        said = ErrorCode.NONE
        await self._metadata.caught_up()
        while True:
            self._changed.clear()
            if self._is_registered():
                await self._changed.wait()
                continue
            try:
                response = await self._channel.ask(
                    self._controller.registration(), timeout_ms=_TIMEOUT_MS
                )
                code, why = ErrorCode(response.error_code), response.error_message
            except ApiError as refusal:
                code, why = refusal.code, refusal.message
            if not code:
                said = code
                if not self._is_registered():
                    await self._changed.wait()  # committed, and not here yet
                continue
            if code is not said:
                said = code
                self._lines.warn(f"this controller is not registered yet: {code.name}: {why}")
            await asyncio.sleep(_PAUSE_SECONDS)

    def _is_registered(self) -> bool:
        image = self._metadata.image
        if image.metadata_version < LEVEL_CONTROLLER_REGISTRATION:
            return True  # as far as the cluster knows registrations
        known = image.controllers.get(self._node_id)
        return known is not None and known.incarnation_id == self._controller.incarnation_id
