"""Puts records into a broker before a test, and reads them afterwards."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater import ConsumedRecord

_POLL_MS_MAX = 1000


def create(
    bootstrap: str, topics: Mapping[str, int], security: Mapping[str, Any] | None = None
) -> None:
    """Creates the topics that do not exist yet, each with its number of partitions."""
    if not topics:
        return
    from headwater import NewTopic, TopicExists
    from headwater.blocking import Admin

    with Admin(bootstrap, **(security or {})) as admin:
        made = admin.create_topics(
            [NewTopic(name, partitions=count) for name, count in topics.items()]
        )
    for result in made.values():
        if isinstance(result, Exception) and not isinstance(result, TopicExists):
            raise result


def send(
    bootstrap: str,
    topic: str,
    value: str | bytes | None,
    *,
    key: str | bytes | None,
    headers: Mapping[str, bytes] | None,
    security: Mapping[str, Any] | None = None,
) -> None:
    from headwater.blocking import Producer

    with Producer(bootstrap, **(security or {})) as producer:
        producer.send(topic, value, key=key, headers=headers)


def read(
    bootstrap: str,
    topic: str,
    count: int | None,
    *,
    timeout_ms: int,
    security: Mapping[str, Any] | None = None,
) -> list[ConsumedRecord]:
    """Returns all records, at once or as soon as there are `count`. A topic that does not exist has
    none; with `count` it may still be created."""
    from headwater import UnknownTopic
    from headwater.blocking import Admin, Consumer

    def too_late() -> TimeoutError:
        wanted = "" if count is None else f" of {count}"
        return TimeoutError(f"{len(found)}{wanted} records of {topic} in {timeout_ms} ms")

    deadline = time.monotonic() + timeout_ms / 1000
    found: list[ConsumedRecord] = []
    if count is None:
        with Admin(bootstrap, **(security or {})) as admin:
            if topic not in [listed.name for listed in admin.list_topics(internal=True)]:
                return found
    with Consumer(bootstrap, allow_auto_create_topics=False, **(security or {})) as consumer:
        try:
            partitions = consumer.partitions_for(topic, timeout_ms=timeout_ms)
        except UnknownTopic:
            raise too_late() from None
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        while len(found) < (count or 0) or any(
            consumer.position(partition) < end
            for partition, end in consumer.end_offsets(*partitions).items()
        ):
            left_ms = round((deadline - time.monotonic()) * 1000)
            if left_ms <= 0:
                raise too_late()
            found += consumer.poll(timeout_ms=min(left_ms, _POLL_MS_MAX))
    return found
