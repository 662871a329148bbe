"""Topics: create, delete, list and describe them, and add partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headwater.client.admin.configs import ConfigEntry, config_entry, config_text
from headwater.client.admin.results import only, outcome
from headwater.client.errors import ClientError, error_for
from headwater.errors import ErrorCode
from headwater.model import NO_NODE, ZERO_ID, id_from_text, id_text
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages import create_partitions as create_partitions_api
from headwater.protocol.messages import create_topics as create_topics_api
from headwater.protocol.messages import delete_topics as delete_topics_api
from headwater.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from headwater.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headwater.security.operations import operation_names

if TYPE_CHECKING:
    from headwater.client.admin import Admin

_BROKERS_CHOICE = -1  # the cluster's num.partitions and default.replication.factor
_IDS_SINCE = 6  # from this version on DeleteTopics takes ids
_METADATA_IDS_SINCE = 12  # and Metadata answers for ids without names
PAGE_PARTITIONS = 2000  # topics a page, as in Kafka's own client


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created. None leaves the choice to the cluster; `assignments` lists the brokers
    of each partition and replaces both numbers."""

    name: str
    partitions: int | None = None
    replication: int | None = None
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic that was created. Older brokers report nothing else: their fields are None."""

    name: str
    id: str | None = None
    partitions: int | None = None
    replication: int | None = None
    configs: Mapping[str, ConfigEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicListed:
    """An entry of a list of topics. `replication` is that of its first partition."""

    name: str
    id: str | None
    is_internal: bool
    partitions: int
    replication: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition. `leader` is None while it has none; `eligible` are the replicas outside the ISR
    that may lead without loss (KIP-966), None if the cluster does not report them."""

    index: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...] = ()
    eligible: tuple[int, ...] | None = None
    last_known_eligible: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. `operations` are those that the caller may perform, None unless requested."""

    name: str
    id: str | None
    is_internal: bool
    partitions: tuple[Partition, ...]
    operations: frozenset[str] | None = None

    @property
    def replication(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new number of partitions of a topic; `assignments` lists the brokers of each new one."""

    total: int
    assignments: Sequence[Sequence[int]] | None = None


async def create_topic(
    admin: Admin,
    name: str,
    *,
    partitions: int | None = None,
    replication: int | None = None,
    assignments: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, object] | None = None,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> TopicCreated:
    """Creates a topic; with `validate_only`, only checks whether it could be created."""
    topic = NewTopic(name, partitions, replication, assignments, configs or {})
    return only(
        await create_topics(admin, [topic], validate_only=validate_only, timeout_ms=timeout_ms)
    )


async def create_topics(
    admin: Admin,
    topics: Iterable[NewTopic | str],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> dict[str, TopicCreated | ClientError]:
    """Creates topics; a plain name leaves all else to the cluster."""
    wanted = {
        topic.name: topic
        for topic in (NewTopic(each) if isinstance(each, str) else each for each in topics)
    }

    async def round_of(names: list[str], deadline: float) -> dict[str, TopicCreated | ClientError]:
        answer = await admin._router.controller(
            create_topics_api.CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=admin._router.left_ms(deadline),
                validate_only=validate_only,
            ),
            deadline,
        )
        return {each.name: _created(each) for each in answer.topics}

    results = await admin._router.retry_pending(wanted, round_of, timeout_ms=timeout_ms)
    if not validate_only:
        made = [each for each in results.values() if isinstance(each, TopicCreated)]
        admin._router.on_topics_created(each.name for each in made)
        admin._router.on_topics_created(each.id for each in made if each.id is not None)
    return results


def _creatable(topic: NewTopic) -> create_topics_api.CreatableTopic:
    return create_topics_api.CreatableTopic(
        name=topic.name,
        num_partitions=_BROKERS_CHOICE
        if topic.partitions is None or topic.assignments
        else topic.partitions,
        replication_factor=_BROKERS_CHOICE
        if topic.replication is None or topic.assignments
        else topic.replication,
        assignments=[
            create_topics_api.CreatableReplicaAssignment(
                partition_index=index, broker_ids=list(brokers)
            )
            for index, brokers in (topic.assignments or {}).items()
        ],
        configs=[
            create_topics_api.CreatableTopicConfig(name=name, value=config_text(value))
            for name, value in topic.configs.items()
        ],
    )


def _created(result: create_topics_api.CreatableTopicResult) -> TopicCreated | ClientError:
    if result.error_code:
        return error_for(result.error_code, f"topic {result.name}", result.error_message)
    return TopicCreated(
        name=result.name,
        id=_id(result.topic_id),
        partitions=None if result.num_partitions < 0 else result.num_partitions,
        replication=None if result.replication_factor < 0 else result.replication_factor,
        configs={
            each.name: config_entry(
                each.name,
                each.value,
                source=each.config_source,
                is_read_only=each.read_only,
                is_sensitive=each.is_sensitive,
            )
            for each in result.configs or ()
        },
    )


def _id(raw: bytes) -> str | None:
    return None if raw == ZERO_ID else id_text(raw)


async def delete_topic(admin: Admin, name: str, *, timeout_ms: int | None = None) -> None:
    """Deletes a topic and all its records."""
    only(await delete_topics(admin, [name], timeout_ms=timeout_ms))


async def delete_topics(
    admin: Admin,
    names: Iterable[str] = (),
    *,
    ids: Iterable[str] = (),
    timeout_ms: int | None = None,
) -> dict[str, ClientError | None]:
    """Deletes topics by name or by id. Returns the error of each, or None."""
    raw_ids = {text: id_from_text(text) for text in ids}
    wanted = [*dict.fromkeys(names), *raw_ids]

    async def round_of(keys: list[str], deadline: float) -> dict[str, ClientError | None]:
        by_name = [key for key in keys if key not in raw_ids]
        answer = await admin._router.controller(
            delete_topics_api.DeleteTopicsRequest(
                topics=[
                    delete_topics_api.DeleteTopicState(name=None, topic_id=raw_ids[key])
                    if key in raw_ids
                    else delete_topics_api.DeleteTopicState(name=key, topic_id=ZERO_ID)
                    for key in keys
                ],
                topic_names=by_name,
                timeout_ms=admin._router.left_ms(deadline),
            ),
            deadline,
            # Without a place for the id it must not be dropped silently.
            at_least=_IDS_SINCE if raw_ids else None,
        )
        results = {}
        for each in answer.responses:
            key = id_text(each.topic_id)
            if key not in raw_ids:
                key = each.name or key
            results[key] = outcome(each.error_code, f"topic {key}", each.error_message)
        return results

    return await admin._router.retry_pending(wanted, round_of, timeout_ms=timeout_ms)


async def list_topics(
    admin: Admin, *, internal: bool = False, timeout_ms: int | None = None
) -> list[TopicListed]:
    """Returns all topics that the caller may see, by name; `internal` adds the cluster's own."""
    answer = await admin._router.anyone(
        MetadataRequest(topics=None, allow_auto_topic_creation=False), timeout_ms=timeout_ms
    )
    listed = [
        TopicListed(
            name=topic.name or "",
            id=_id(topic.topic_id),
            is_internal=topic.is_internal,
            partitions=len(topic.partitions),
            replication=len(topic.partitions[0].replica_nodes) if topic.partitions else 0,
        )
        for topic in answer.topics
        if not topic.error_code and (internal or not topic.is_internal)
    ]
    return sorted(listed, key=lambda topic: topic.name)


async def describe_topic(
    admin: Admin, name: str, *, operations: bool = False, timeout_ms: int | None = None
) -> Topic:
    """Returns a topic with its partitions: leaders, replicas and in-sync replicas."""
    return only(await describe_topics(admin, [name], operations=operations, timeout_ms=timeout_ms))


async def describe_topics(
    admin: Admin,
    names: Iterable[str] = (),
    *,
    ids: Iterable[str] = (),
    operations: bool = False,
    timeout_ms: int | None = None,
) -> dict[str, Topic | ClientError]:
    """Returns topics by name or by id, with their partitions; `operations` requests what the caller
    may do to them."""
    deadline = admin._router.deadline(timeout_ms)

    async def by_name(pending: list[str], deadline: float) -> dict[str, Topic | ClientError]:
        # Only brokers since 3.9 page; they also report eligible leaders.
        if await admin._router.serves(ApiKey.DESCRIBE_TOPIC_PARTITIONS, deadline):
            return await _describe_by_pages(admin, pending, deadline, operations=operations)
        return await _describe_at_once(admin, pending, deadline, operations=operations)

    async def by_id(pending: list[str], deadline: float) -> dict[str, Topic | ClientError]:
        return await _describe_by_ids(admin, pending, deadline, operations=operations)

    patience = admin._router.patience
    found = await admin._router.retry_pending(names, by_name, deadline=deadline, patience=patience)
    return found | await admin._router.retry_pending(
        ids, by_id, deadline=deadline, patience=patience
    )


async def _describe_by_pages(
    admin: Admin, names: Sequence[str], deadline: float, *, operations: bool
) -> dict[str, Topic | ClientError]:
    """Reads all pages. A page may end within a topic; the rest follows under the same name. The
    response has the permitted operations whether or not they were requested."""
    pieces: dict[str, list[DescribeTopicPartitionsResponseTopic]] = {}
    cursor = None
    while True:
        answer = await admin._router.anyone(
            DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=name) for name in sorted(names)],
                response_partition_limit=PAGE_PARTITIONS,
                cursor=cursor,
            ),
            deadline=deadline,
        )
        for topic in answer.topics:
            pieces.setdefault(topic.name or "", []).append(topic)
        if answer.next_cursor is None:
            break
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )
    found: dict[str, Topic | ClientError] = {}
    for name in names:
        parts = pieces.get(name)
        if not parts:
            found[name] = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
        elif parts[0].error_code:
            found[name] = error_for(parts[0].error_code, f"topic {name}")
        else:
            about = _topic(parts[0], [each for part in parts for each in part.partitions])
            found[name] = about if operations else replace(about, operations=None)
    return found


async def _describe_at_once(
    admin: Admin, names: Sequence[str], deadline: float, *, operations: bool
) -> dict[str, Topic | ClientError]:
    answer = await admin._router.anyone(
        MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=operations,
        ),
        deadline=deadline,
    )
    return {topic.name or "": _described(topic, topic.name or "") for topic in answer.topics}


async def _describe_by_ids(
    admin: Admin, ids: Sequence[str], deadline: float, *, operations: bool
) -> dict[str, Topic | ClientError]:
    answer = await admin._router.anyone(
        MetadataRequest(
            topics=[MetadataRequestTopic(name=None, topic_id=id_from_text(text)) for text in ids],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=operations,
        ),
        deadline=deadline,
        at_least=_METADATA_IDS_SINCE,
    )
    return {
        id_text(topic.topic_id): _described(topic, id_text(topic.topic_id))
        for topic in answer.topics
    }


def _described(topic: MetadataResponseTopic, key: str) -> Topic | ClientError:
    if topic.error_code:
        return error_for(topic.error_code, f"topic {key}")
    return _topic(topic, topic.partitions)


def _topic(
    topic: DescribeTopicPartitionsResponseTopic | MetadataResponseTopic,
    partitions: Sequence[DescribeTopicPartitionsResponsePartition | MetadataResponsePartition],
) -> Topic:
    return Topic(
        name=topic.name or "",
        id=_id(topic.topic_id),
        is_internal=topic.is_internal,
        partitions=tuple(
            _partition(each) for each in sorted(partitions, key=lambda each: each.partition_index)
        ),
        operations=operation_names(topic.topic_authorized_operations),
    )


def _partition(
    partition: DescribeTopicPartitionsResponsePartition | MetadataResponsePartition,
) -> Partition:
    eligible = last_known = None
    if isinstance(partition, DescribeTopicPartitionsResponsePartition):
        eligible = partition.eligible_leader_replicas
        last_known = partition.last_known_elr
    return Partition(
        index=partition.partition_index,
        leader=None if partition.leader_id == NO_NODE else partition.leader_id,
        leader_epoch=None if partition.leader_epoch < 0 else partition.leader_epoch,
        replicas=tuple(partition.replica_nodes),
        in_sync=tuple(partition.isr_nodes),
        offline=tuple(partition.offline_replicas),
        eligible=None if eligible is None else tuple(eligible),
        last_known_eligible=None if last_known is None else tuple(last_known),
    )


async def create_partitions(
    admin: Admin,
    topics: Mapping[str, int | NewPartitions],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> dict[str, ClientError | None]:
    """Increases the number of partitions of topics, never decreases it: `{"orders": 12}`. Returns
    the error of each, or None."""
    wanted = {
        name: NewPartitions(total) if isinstance(total, int) else total
        for name, total in topics.items()
    }

    async def round_of(names: list[str], deadline: float) -> dict[str, ClientError | None]:
        answer = await admin._router.controller(
            create_partitions_api.CreatePartitionsRequest(
                topics=[_growing(name, wanted[name]) for name in names],
                timeout_ms=admin._router.left_ms(deadline),
                validate_only=validate_only,
            ),
            deadline,
        )
        return {
            each.name: outcome(each.error_code, f"topic {each.name}", each.error_message)
            for each in answer.results
        }

    return await admin._router.retry_pending(wanted, round_of, timeout_ms=timeout_ms)


def _growing(name: str, new: NewPartitions) -> create_partitions_api.CreatePartitionsTopic:
    return create_partitions_api.CreatePartitionsTopic(
        name=name,
        count=new.total,
        assignments=None
        if new.assignments is None
        else [
            create_partitions_api.CreatePartitionsAssignment(broker_ids=list(brokers))
            for brokers in new.assignments
        ],
    )
