"""Topics: creation, deletion, additional partitions.

The topics of a request are independent: a refused one does not affect the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from headwater.config.alter import Alteration, AlterOperation
from headwater.config.describe import describe_topic
from headwater.controller import placement
from headwater.controller.configs import alter_resource
from headwater.controller.decision import Decision, check_bound
from headwater.controller.policies import NewTopic, PolicyRefused
from headwater.controller.state import ControllerState
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import PartitionState, Resource, ResourceType, Topic, topic_names
from headwater.model import METADATA_TOPIC, ZERO_ID, id_text
from headwater.protocol import Message
from headwater.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from headwater.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from headwater.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest
from headwater.protocol.records.metadata_topics import RemoveTopicRecord, TopicRecord

# Whether the client may do something with the topic of that name.
Allowed = Callable[[str], bool]

# Settings of the topics of one request, cached: most topics have the same.
_Described = dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]]


# Takes partitions from the client's quota of changes; raises ApiError if it may have none now.
Take = Callable[[int], None]


def _all(_: str) -> bool:
    return True


def take_freely(_: int) -> None:
    """The quota of those who have none."""


def create_topics(
    state: ControllerState,
    request: CreateTopicsRequest,
    *,
    take: Take = take_freely,
    may_create: Allowed = _all,
    may_describe: Allowed = _all,
) -> Decision[list[CreatableTopicResult]]:
    records: list[Message] = []
    results: list[CreatableTopicResult] = []
    counts = Counter(topic.name for topic in request.topics)
    described: _Described = {}
    for topic in request.topics:
        if counts[topic.name] != 1:
            continue
        try:
            if topic.name == METADATA_TOPIC:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} is reserved for the cluster"
                )
            if not may_create(topic.name):
                raise ApiError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"not allowed to create {topic.name}"
                )
            may_see = may_describe(topic.name)
            made, result = _create_topic(state, topic, described if may_see else None, take)
            check_bound(len(records) + len(made))
        except ApiError as refusal:
            is_of_policy = isinstance(refusal, PolicyRefused)
            if refusal.code is ErrorCode.POLICY_VIOLATION and not is_of_policy:
                raise  # the request as a whole is too large
            results.append(
                CreatableTopicResult(
                    name=topic.name, error_code=refusal.code, error_message=refusal.message
                )
            )
        else:
            records += made
            results.append(result)
    results += [
        CreatableTopicResult(
            name=name,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"topic {name} is named {count} times",
        )
        for name, count in counts.items()
        if count > 1
    ]
    return Decision(() if request.validate_only else records, results)


def _create_topic(
    state: ControllerState, topic: CreatableTopic, described: _Described | None, take: Take
) -> tuple[list[Message], CreatableTopicResult]:
    _check_new_name(state, topic.name)
    configs = {config.name: config.value for config in topic.configs}
    nulls = [name for name, value in configs.items() if value is None]
    if nulls:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"expected values, not null, for {', '.join(nulls)}"
        )
    config_records = alter_resource(
        state,
        Resource(ResourceType.TOPIC, topic.name),
        [Alteration(name, AlterOperation.SET, value) for name, value in configs.items()],
        is_new=True,
    )
    partitions = _assigned(state, topic) if topic.assignments else _placed(state, topic)
    if state.policies.on_new_topic is not None:
        state.policies.on_new_topic(_as_asked(topic, partitions))
    take(len(partitions))
    topic_id = state.new_id()
    result = CreatableTopicResult(name=topic.name, topic_id=topic_id, error_message=None)
    if described is not None:
        overrides = {name: value for name, value in configs.items() if value is not None}
        result.num_partitions = len(partitions)
        result.replication_factor = len(partitions[0].replicas)
        alike = tuple(overrides.items())
        if alike not in described:
            described[alike] = _described(state, overrides)
        result.configs = described[alike]
    else:
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id), *config_records]
    level = state.image.metadata_version
    records += [made.to_record(topic_id, index, level) for index, made in enumerate(partitions)]
    return records, result


def _as_asked(topic: CreatableTopic, partitions: list[PartitionState]) -> NewTopic:
    configs = {config.name: config.value for config in topic.configs if config.value is not None}
    if topic.assignments:
        replicas = {each.partition_index: each.broker_ids for each in topic.assignments}
        return NewTopic(topic.name, None, None, replicas, configs)
    return NewTopic(topic.name, len(partitions), len(partitions[0].replicas), None, configs)


def _check_new_name(state: ControllerState, name: str) -> None:
    topic_names.check(name)
    if name in state.image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if topic_names.may_collide(name):
        others = state.image.collisions.get(topic_names.collision_key(name))
        if others:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name} differs from {min(others)} only in '.' and '_', "
                "which look the same in metrics",
            )


def _described(state: ControllerState, overrides: dict[str, str]) -> list[CreatableTopicConfigs]:
    entries = describe_topic(overrides, state.layers, state.topic_defaults)
    return [
        CreatableTopicConfigs(
            name=entry.name,
            # Settings are returned exactly as they were given, including blanks.
            value=None if entry.is_sensitive else overrides.get(entry.name, entry.value),
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in sorted(entries, key=lambda entry: entry.name)
    ]


def _placed(state: ControllerState, topic: CreatableTopic) -> list[PartitionState]:
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {topic.replication_factor}, expected at least 1, "
            "or -1 for the default",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"{topic.num_partitions} partitions, expected at least 1, or -1 for the default",
        )
    count = topic.num_partitions if topic.num_partitions != -1 else state.node.num_partitions
    factor = topic.replication_factor
    if factor == -1:
        factor = state.node.default_replication_factor
    return _place(state, partitions=count, replicas=factor)


def _place(state: ControllerState, *, partitions: int, replicas: int) -> list[PartitionState]:
    check_bound(partitions)  # a large number in a request must not cost memory
    placed = placement.place(
        state.usable_brokers(), partitions=partitions, replicas=replicas, random=state.random
    )
    return [
        _new_partition(state, chosen, otherwise=ErrorCode.INVALID_REPLICATION_FACTOR)
        for chosen in placed
    ]


def _assigned(state: ControllerState, topic: CreatableTopic) -> list[PartitionState]:
    if topic.replication_factor != -1 or topic.num_partitions != -1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "with an assignment, partitions and replication factor must both be -1",
        )
    partitions: dict[int, PartitionState] = {}
    factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in partitions:
            raise _bad_assignment(f"partition {index} is assigned twice")
        _check_assignment(state, assignment.broker_ids, factor)
        factor = len(assignment.broker_ids)
        partitions[index] = _new_partition(state, assignment.broker_ids)
    missing = set(range(len(partitions))) - partitions.keys()
    if missing:
        raise _bad_assignment(f"partition {min(missing)} is missing; expected 0, 1, 2 and so on")
    return [partitions[index] for index in range(len(partitions))]


def _check_assignment(state: ControllerState, replicas: Sequence[int], factor: int | None) -> None:
    if not replicas:
        raise _bad_assignment("a partition needs at least one replica")
    for broker_id in sorted(replicas):
        if broker_id not in state.image.brokers:
            raise _bad_assignment(f"broker {broker_id} is not registered")
        if replicas.count(broker_id) > 1:
            raise _bad_assignment(f"broker {broker_id} is named more than once in a partition")
    if factor is not None and len(replicas) != factor:
        raise _bad_assignment(
            f"a partition has {len(replicas)} replicas where the others have {factor}"
        )


def _bad_assignment(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _new_partition(
    state: ControllerState,
    replicas: Iterable[int],
    *,
    otherwise: ErrorCode = ErrorCode.INVALID_REPLICA_ASSIGNMENT,
) -> PartitionState:
    """Returns a new partition led by its first live replica; refuses with `otherwise` if there is
    none."""
    replicas = tuple(replicas)
    isr = tuple(replica for replica in replicas if state.active(replica))
    if not isr:
        raise ApiError(otherwise, f"brokers {list(replicas)} are all fenced or shutting down")
    return PartitionState(
        replicas=replicas,
        directories=tuple(state.default_directory(replica) for replica in replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
    )


def delete_topics(
    state: ControllerState,
    request: DeleteTopicsRequest,
    *,
    take: Take = take_freely,
    may_delete: Allowed = _all,
    may_describe: Allowed = _all,
) -> Decision[list[DeletableTopicResult]]:
    """Deletes topics by name or by id; refuses a topic that is given by both, or twice."""
    results: list[DeletableTopicResult] = []

    def refuse(name: str | None, topic_id: bytes, code: ErrorCode, message: str) -> None:
        results.append(
            DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=message
            )
        )

    names = Counter(request.topic_names)
    ids: Counter[bytes] = Counter()
    for asked in request.topics:
        if asked.name is not None and asked.topic_id != ZERO_ID:
            refuse(asked.name, asked.topic_id, ErrorCode.INVALID_REQUEST, "both name and id given")
        elif asked.name is not None:
            names[asked.name] += 1
        elif asked.topic_id != ZERO_ID:
            ids[asked.topic_id] += 1
        else:
            refuse(None, ZERO_ID, ErrorCode.INVALID_REQUEST, "neither name nor id given")
    doomed: dict[bytes, Topic] = {}
    for topic_id, count in ids.items():
        topic = state.image.topics_by_id.get(topic_id)
        if count > 1:
            refuse(None, topic_id, ErrorCode.INVALID_REQUEST, f"id given {count} times")
        elif topic is None:
            refuse(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, f"no topic {id_text(topic_id)}")
        elif not may_delete(topic.name):
            shown = topic.name if may_describe(topic.name) else None
            refuse(shown, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed")
        else:
            doomed[topic_id] = topic
    for name, count in names.items():
        topic = state.image.topics.get(name)
        if count > 1:
            refuse(name, ZERO_ID, ErrorCode.INVALID_REQUEST, f"topic {name} is named {count} times")
        elif not may_describe(name):
            refuse(name, ZERO_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed")
        elif topic is None:
            refuse(name, ZERO_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name}")
        elif not may_delete(name):
            refuse(name, ZERO_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed")
        elif topic.id in ids:
            doomed.pop(topic.id, None)
            refuse(name, topic.id, ErrorCode.INVALID_REQUEST, "the topic is also given by its id")
        else:
            doomed[topic.id] = topic
    records: list[Message] = []
    for topic_id, topic in doomed.items():
        try:
            take(len(topic.partitions))
        except ApiError as refusal:
            refuse(topic.name, topic_id, refusal.code, refusal.message or "")
        else:
            results.append(DeletableTopicResult(name=topic.name, topic_id=topic_id))
            records.append(RemoveTopicRecord(topic_id=topic_id))
    return Decision(records, results)


def create_partitions(
    state: ControllerState,
    request: CreatePartitionsRequest,
    *,
    take: Take = take_freely,
    may_alter: Allowed = _all,
) -> Decision[list[CreatePartitionsTopicResult]]:
    records: list[Message] = []
    counts = Counter(topic.name for topic in request.topics)
    results = [
        CreatePartitionsTopicResult(
            name=name,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"topic {name} is named {count} times",
        )
        for name, count in counts.items()
        if count > 1
    ]
    for topic in request.topics:
        if counts[topic.name] > 1:
            continue
        result = CreatePartitionsTopicResult(name=topic.name)
        results.append(result)
        try:
            if not may_alter(topic.name):
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            records += _more_partitions(state, topic, take)
        except ApiError as refusal:
            result.error_code = refusal.code
            result.error_message = refusal.message
    return Decision(() if request.validate_only else records, results)


def _more_partitions(
    state: ControllerState, asked: CreatePartitionsTopic, take: Take
) -> list[Message]:
    topic = state.image.topics.get(asked.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # Kafka has no message either
    have = len(topic.partitions)
    if asked.count <= have:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {asked.name} has {have} partitions, expected more than that, not {asked.count}",
        )
    more = asked.count - have
    factor = len(topic.partitions[0].replicas)
    if asked.assignments is None:
        made = _place(state, partitions=more, replicas=factor)
    else:
        if len(asked.assignments) != more:
            raise _bad_assignment(
                f"{more} partitions to add, but {len(asked.assignments)} assignments given"
            )
        made = []
        for assignment in asked.assignments:
            _check_assignment(state, assignment.broker_ids, factor)
            made.append(_new_partition(state, assignment.broker_ids))
    take(len(made))
    level = state.image.metadata_version
    return [part.to_record(topic.id, have + number, level) for number, part in enumerate(made)]
