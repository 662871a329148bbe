"""Records that cannot be deserialized: a callback may take them, or a dead-letter topic."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from headwater.client.errors import ConfigError, DeserializationFailed

if TYPE_CHECKING:
    from headwater.client.producer.records import Headers

BadRecordCallback: TypeAlias = Callable[[DeserializationFailed], Any]
OnBadRecord: TypeAlias = Literal["raise"] | BadRecordCallback

# Kafka Connect and Kafka Streams name theirs `__connect.errors.topic` and `__streams.errors.topic`.
HEADER_PREFIX = "__headwater.errors."
# The text of an error may quote the record: it must not make a dead letter too large to send.
_MESSAGE_LENGTH_MAX = 1000


class RecordSender(Protocol):
    """The part of a producer that dead letters need, asynchronous or blocking."""

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
    ) -> Any: ...


class DeadLetter:
    """Sends records that cannot be deserialized to a topic, for `Consumer(on_bad_record=…)`.

    A dead letter has the key, the value, the headers and the timestamp of the record, and headers
    that say where it came from and what failed: `__headwater.errors.topic`, `.partition`,
    `.offset`, `.part` ("key" or "value"), `.exception` (the class) and `.message`. The consumer
    moves on when the dead letter is acknowledged; if it cannot be sent, the consumer raises that
    error and stays at the record. A record may be sent twice if the consumer is interrupted.

    The producer is yours to start and to close. It must have no serializers, since it sends bytes,
    and must wait for acknowledgements. An asyncio consumer needs an asyncio producer, a blocking
    consumer a blocking one.
    """

    def __init__(self, topic: str, producer: RecordSender) -> None:
        if not isinstance(topic, str) or not topic.strip():
            raise ConfigError(f"dead-letter topic {topic!r}: expected the name of a topic")
        config = getattr(producer, "config", None)
        for name in ("key_serializer", "value_serializer"):
            if getattr(config, name, None) is not None:
                raise ConfigError(
                    f"the producer of dead letters has a {name}, but sends bytes; give another one"
                )
        if getattr(config, "acks", None) == 0:
            raise ConfigError("the producer of dead letters has acks=0; it needs acks=1 or all")
        self.topic = topic
        self.producer = producer

    def __call__(self, error: DeserializationFailed) -> Any:
        """Sends the record of an error; an awaitable if the producer is asynchronous."""
        record = error.record
        if record is None or error.topic == self.topic:
            raise error  # a dead letter that cannot be read must not become another one
        return self.producer.send(
            self.topic,
            record.value,
            key=record.key,
            headers=[*record.headers, *origin_headers(error)],
            timestamp=record.timestamp if record.timestamp >= 0 else None,
        )


def origin_headers(error: DeserializationFailed) -> list[tuple[str, bytes]]:
    """Returns headers that say where a record came from and what is wrong with it."""
    cause: BaseException = error.__cause__ or error
    kind = type(cause)
    fields = {
        "topic": error.topic,
        "partition": str(error.partition),
        "offset": str(error.offset),
        "part": error.part,
        "exception": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
        "message": str(cause)[:_MESSAGE_LENGTH_MAX],
    }
    return [(HEADER_PREFIX + name, text.encode(errors="replace")) for name, text in fields.items()]


def bad_record_callback(value: object, *, is_blocking: bool) -> BadRecordCallback | None:
    """Validates `on_bad_record`; None stands for "raise"."""
    if value == "raise":
        return None
    if isinstance(value, DeadLetter):
        if inspect.iscoroutinefunction(value.producer.send) is is_blocking:
            kind = "headwater.blocking.Producer" if is_blocking else "headwater.Producer"
            raise ConfigError(f"the dead letters of this consumer need a {kind}")
        return value
    if not callable(value):
        raise ConfigError(
            f'on_bad_record={value!r}: expected "raise", a function of an error, or a DeadLetter'
        )
    return value


async def run_callback(callback: BadRecordCallback, error: DeserializationFailed) -> None:
    """Calls it, and awaits it if it is asynchronous."""
    outcome = callback(error)
    if inspect.isawaitable(outcome):
        await outcome
