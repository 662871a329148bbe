"""Metadata: brokers, topics, and who leads which partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import cluster_operations, denied, is_allowed, operations
from headwater.broker.context import Context
from headwater.errors import ErrorCode
from headwater.metadata import Image, Topic
from headwater.metadata.topic_names import is_internal, why_invalid
from headwater.model import ZERO_ID
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headwater.security.acls import AclResource
from headwater.security.operations import NOT_ASKED, TOPIC_OPERATIONS, Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(broker: Broker, context: Context, request: MetadataRequest) -> MetadataResponse:
    wanted = request.topics
    if context.version == 0 and not wanted:
        wanted = None
    if wanted is not None and not _can_be_looked_up(context.version, wanted):
        return MetadataResponse(
            topics=[
                MetadataResponseTopic(
                    error_code=ErrorCode.INVALID_REQUEST,
                    name=topic.name or "",
                    topic_id=topic.topic_id,
                )
                for topic in wanted
            ],
            error_code=ErrorCode.INVALID_REQUEST,
        )
    endpoints = broker.endpoints(context)
    reachable = {endpoint.id for endpoint in endpoints}
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=at.id, host=at.host, port=at.port, rack=at.rack)
            for at in endpoints
        ],
        cluster_id=broker.cluster_id,
        # Clients send admin requests to any broker; each hands them on to the controller.
        controller_id=broker.controller_id(endpoints),
        topics=_topics(broker, context, request, wanted, reachable),
    )
    if request.include_topic_authorized_operations and broker.authorizer is not None:
        for topic in response.topics:
            if topic.topic_authorized_operations != NOT_ASKED:
                topic.topic_authorized_operations = operations(
                    broker, context, AclResource.TOPIC, topic.name or ""
                )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(broker, context)
    return response


def _can_be_looked_up(version: int, wanted: list[MetadataRequestTopic]) -> bool:
    if version < 12:
        # Ids came into the schema before brokers could look them up.
        return all(t.name is not None and t.topic_id == ZERO_ID for t in wanted)
    return all(t.name is not None or t.topic_id != ZERO_ID for t in wanted)


def _topics(
    broker: Broker,
    context: Context,
    request: MetadataRequest,
    wanted: list[MetadataRequestTopic] | None,
    reachable: set[int],
) -> list[MetadataResponseTopic]:
    bits = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    image = broker.image
    if wanted is None:
        hidden = denied(
            broker, context, Operation.DESCRIBE, AclResource.TOPIC, image.topics, quiet=True
        )
        return [
            _describe(image, topic, bits, reachable, context.version)
            for topic in image.topics.values()
            if not hidden or topic.name not in hidden
        ]
    found: list[MetadataResponseTopic] = []
    missing: list[str] = []
    # Where one topic is named by its id, Kafka looks at ids only.
    ids = dict.fromkeys(t.topic_id for t in wanted if t.topic_id != ZERO_ID)
    names = dict.fromkeys(t.name or "" for t in wanted if not ids)
    hidden = denied(broker, context, Operation.DESCRIBE, AclResource.TOPIC, names)
    for name in names:
        if name in hidden:  # whether it exists is not told either
            found.append(
                MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
            )
            continue
        topic = image.topics.get(name)
        if topic is not None:
            found.append(_describe(image, topic, bits, reachable, context.version))
            continue
        problem = why_invalid(name)
        found.append(
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_TOPIC_EXCEPTION
                if problem
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                name=name,
                is_internal=is_internal(name),
                topic_authorized_operations=bits,
            )
        )
        if not problem:
            missing.append(name)
    for topic_id in ids:
        by_id = image.topics_by_id.get(topic_id)
        if by_id is not None and not is_allowed(
            broker, context, Operation.DESCRIBE, AclResource.TOPIC, by_id.name
        ):
            found.append(
                MetadataResponseTopic(
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id
                )
            )
        elif by_id is not None:
            found.append(_describe(image, by_id, bits, reachable, context.version))
        else:
            found.append(
                MetadataResponseTopic(
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
                )
            )
    if missing and request.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
        _create(broker, context, missing, found)
    return found


def _create(
    broker: Broker, context: Context, missing: list[str], found: list[MetadataResponseTopic]
) -> None:
    """Has topics created in the background, except those that the client may not create."""
    if not is_allowed(broker, context, Operation.CREATE, AclResource.CLUSTER, tentative=True):
        refused = denied(broker, context, Operation.CREATE, AclResource.TOPIC, missing)
        for topic in found:
            if topic.name in refused:
                topic.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topic.topic_authorized_operations = NOT_ASKED
        missing = [name for name in missing if name not in refused]
    if broker.authorizer is None:
        broker.auto_topics.create(missing)
    else:
        broker.auto_topics.create(missing, context.instead(ApiKey.CREATE_TOPICS))


def _describe(
    image: Image, topic: Topic, bits: int, reachable: set[int], version: int
) -> MetadataResponseTopic:
    answer = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        topic_authorized_operations=bits,
        partitions=[],
    )
    for index, state in sorted(topic.partitions.items()):
        partition = MetadataResponsePartition(
            partition_index=index,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            offline_replicas=image.offline_replicas(state),
        )
        if state.leader not in reachable:
            partition.leader_id = -1
            known = state.leader in image.brokers
            partition.error_code = (
                ErrorCode.LISTENER_NOT_FOUND
                if known and version >= 6
                else ErrorCode.LEADER_NOT_AVAILABLE
            )
        answer.partitions.append(partition)
    return answer
