"""InitProducerId: an id and an epoch for a producer that wants its records stored once.

A producer with a transactional id gets the next epoch of its id: earlier instances are fenced, and
what they have left open is aborted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headwater.broker.authorization import check, check_cluster, may_any
from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from headwater.observability import printable
from headwater.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    try:
        _check_access(broker, context, request)
    except ApiError as refusal:
        return _refused(refusal.code)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    delay = _delay(broker, context) if _takes_new_id(broker, request) else 0.0
    if delay is None:
        # As where ids have run out: the client tries again after a while.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if delay > 0:
        return _after(delay, broker, context, request)
    return _initialized(broker, context, request)


def _takes_new_id(broker: Broker, request: InitProducerIdRequest) -> bool:
    """Returns whether the client gets another producer id. A transactional id that exists keeps its
    own: its next epoch leaves no more traces than the one before, and is not waited for."""
    name = request.transactional_id
    return name is None or broker.transactions.is_new_here(name)


def _delay(broker: Broker, context: Context) -> float | None:
    """Returns for how long the client has to wait for its turn; None if that is too long."""
    per_second = broker.config.value("headwater.producer.ids.per.second.max")
    assert isinstance(per_second, int)
    principal, host = context.principal, context.client_host
    delay = broker.producer_id_pace.delay(
        principal, host, broker.clock.monotonic(), per_second=per_second
    )
    if delay is None or delay > 0:
        broker.log.bounded.warn(
            f"{printable(str(principal))} at {host} asks for more than {per_second} producer ids a "
            "second, and has to wait"
        )
    return delay


async def _after(
    seconds: float, broker: Broker, context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    await asyncio.sleep(seconds)
    if context.connection.gone:  # nobody would use the id
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    answer = _initialized(broker, context, request)
    return answer if isinstance(answer, InitProducerIdResponse) else await answer


def _initialized(
    broker: Broker, context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id is None:
        # Kafka, too, ignores what id an idempotent producer had before: it gets a new one.
        return _new_id(broker)
    try:
        answer = broker.transactions.init(request, version=context.version)
    except ApiError as refusal:
        return _refused(refusal.code)
    return answer if isinstance(answer, InitProducerIdResponse) else _or_refused(answer)


def _check_access(broker: Broker, context: Context, request: InitProducerIdRequest) -> None:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        check(broker, context, Operation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
        if request.enable_2pc:
            check(
                broker,
                context,
                Operation.TWO_PHASE_COMMIT,
                AclResource.TRANSACTIONAL_ID,
                transactional_id,
            )
    # A client that may write to some topic needs no further right for idempotence (KIP-679).
    elif not may_any(broker, context, Operation.WRITE, AclResource.TOPIC):
        check_cluster(broker, context, Operation.IDEMPOTENT_WRITE)


async def _or_refused(answer: Awaitable[InitProducerIdResponse]) -> InitProducerIdResponse:
    try:
        return await answer
    except ApiError as refusal:
        return _refused(refusal.code)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


async def _new_id(broker: Broker) -> InitProducerIdResponse:
    try:
        producer_id = await broker.producer_ids.next()
    except ApiError as refusal:
        return _refused(refusal.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
