"""Reading from the consumers' embedded protocol what the coordinator must know: their topics."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.protocol import DecodeError, decode
from headwater.protocol.records.membership import ConsumerProtocolSubscription

_VERSION_BYTES = 2


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of these members, or None if one of them cannot be read.

    Every version of a subscription starts like version 0, so that nothing here depends on which
    versions there are.
    """
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            if len(subscription) < _VERSION_BYTES or subscription[0] & 0x80:
                return None
            topics.update(_topics(bytes(subscription)))
    except DecodeError:
        return None
    return frozenset(topics)


def _topics(subscription: bytes) -> list[str]:
    return decode(ConsumerProtocolSubscription, subscription, 0, _VERSION_BYTES).topics
