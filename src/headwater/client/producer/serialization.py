"""Serializes keys and values with the user's functions, and calls interceptors."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from headwater.client.config import ProducerConfig
from headwater.client.errors import ClientError, InvalidRecord, SerializationFailed
from headwater.client.producer.records import ProducerRecord, RecordMetadata

_log = logging.getLogger("headwater.client")


class Interceptor(Protocol):
    """An object that sees every record. Its exceptions are logged and go no further."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called with each record before it is serialized; returns it, or another one."""

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ClientError | None
    ) -> None:
        """Called with the outcome of each record."""


class Serialization:
    """Applies the serializers and interceptors of a producer."""

    @classmethod
    def of(cls, config: ProducerConfig) -> Serialization | None:
        """Returns None if the producer has no serializers and no interceptors."""
        made = cls(
            key=config.key_serializer,
            value=config.value_serializer,
            interceptors=config.interceptors,
        )
        return None if made.is_plain else made

    def __init__(
        self,
        *,
        key: Callable[[Any], Any] | None,
        value: Callable[[Any], Any] | None,
        interceptors: tuple[Any, ...],
    ) -> None:
        self._key = key
        self._value = value
        self._on_send = [each.on_send for each in interceptors if hasattr(each, "on_send")]
        self._acknowledged = [
            each.on_acknowledgement for each in interceptors if hasattr(each, "on_acknowledgement")
        ]

    @property
    def is_plain(self) -> bool:
        """Whether records need no serialization and no interceptors."""
        return not (self._key or self._value or self._on_send or self._acknowledged)

    @property
    def is_watched(self) -> bool:
        """Whether an interceptor wants the outcome of every record."""
        return bool(self._acknowledged)

    def prepare(self, record: ProducerRecord) -> ProducerRecord:
        """Returns the record as it is to be sent. Raises SerializationFailed."""
        for intercept in self._on_send:
            try:
                changed = intercept(record)
            except Exception:
                _log.exception("an interceptor's on_send failed")
                continue
            if isinstance(changed, ProducerRecord):
                record = changed
            else:
                _log.error("an interceptor's on_send gave %r and no ProducerRecord", changed)
        key, value = record.key, record.value
        if self._key is not None:
            key = _apply(self._key, key, "key", record.topic)
        if self._value is not None:
            value = _apply(self._value, value, "value", record.topic)
        return replace(record, key=key, value=value)

    @contextmanager
    def reporting_refusals(self) -> Iterator[None]:
        """Reports a refused record to the interceptors, and raises the refusal."""
        try:
            yield
        except ClientError as error:
            self.acknowledged(None, error)
            raise
        except (TypeError, ValueError, OverflowError) as error:  # of an invalid argument
            self.acknowledged(None, InvalidRecord(f"{type(error).__name__}: {error}"))
            raise
        except CancelledError:
            self.acknowledged(None, ClientError("send was cancelled while it waited for room"))
            raise

    def watched(
        self, then: Callable[[RecordMetadata | None, ClientError | None], None] | None
    ) -> Callable[[RecordMetadata | None, ClientError | None], None]:
        """Returns a callback that reports to the interceptors, then to `then`."""

        def settled(metadata: RecordMetadata | None, error: ClientError | None) -> None:
            self.acknowledged(metadata, error)
            if then is not None:
                then(metadata, error)

        return settled

    def acknowledged(self, metadata: RecordMetadata | None, error: ClientError | None) -> None:
        for each in self._acknowledged:
            try:
                each(metadata, error)
            except Exception:
                _log.exception("an interceptor's on_acknowledgement failed")


def _apply(serialize: Callable[[Any], Any], given: Any, field: str, topic: str) -> Any:
    try:
        return serialize(given)
    except Exception as cause:
        raise SerializationFailed(
            f"the {field} of a record for topic {topic}: {field}_serializer failed on "
            f"{type(given).__name__}: {cause!r}"
        ) from cause
