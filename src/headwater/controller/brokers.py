"""Brokers: registration, heartbeats, fencing, shutdown.

A broker is registered as fenced, catches up with the log, and is unfenced by a heartbeat. A broker
that sends no heartbeat during its session timeout is fenced, and its partitions get other leaders
in the same batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from headwater.controller.decision import Decision
from headwater.controller.elections import (
    partitions_without_leader,
    updates_for,
)
from headwater.controller.state import ControllerState, Session
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import BrokerRegistration, Endpoint
from headwater.metadata.features import (
    LEVEL_CONTROLLER_REGISTRATION,
    LEVEL_CORDONED_DIRECTORIES,
    LEVEL_DIRECTORIES,
    METADATA_VERSION,
    LevelRange,
)
from headwater.metadata.model import DIRECTORIES_RESERVED
from headwater.protocol import Message
from headwater.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from headwater.protocol.messages.broker_registration import BrokerRegistrationRequest
from headwater.protocol.messages.controller_registration import ControllerRegistrationRequest
from headwater.protocol.records.metadata_nodes import (
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from headwater.protocol.records.metadata_topics import ProducerIdsRecord

_FENCE = 1
_UNFENCE = -1
_IN_CONTROLLED_SHUTDOWN = 1
_PRODUCER_ID_BLOCK = 1000
_PRODUCER_ID_MAX = 2**63 - 1


class HeartbeatReply(NamedTuple):
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class _Standing(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "in controlled shutdown"
    SHUTDOWN_NOW = "may go"


def register_broker(
    state: ControllerState,
    request: BrokerRegistrationRequest,
    now: float,
    *,
    is_own: bool = False,
    tells_clean_stops: bool = True,
) -> Decision[int]:
    """Registers a broker. The reply is its epoch, which all its further requests must carry.

    `is_own` says that the request comes from the broker in this process. `tells_clean_stops` is
    false for requests in a version that has no previous epoch: nothing proves a clean stop then.
    """
    if request.cluster_id != state.cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"this is cluster {state.cluster_id}, not {request.cluster_id}",
        )
    existing = state.image.brokers.get(request.broker_id)
    is_same = existing is not None and existing.incarnation_id == request.incarnation_id
    # An earlier broker of our own node has ended: this process holds the lock of the directory.
    # Another host that uses our id by mistake is not us.
    if existing is not None and not is_same and not is_own and _is_alive(state, existing, now):
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {existing.id} is registered and alive",
        )
    if request.is_migrating_zk_broker:
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, "brokers that use ZooKeeper are not supported"
        )
    _check_directories(state, request)
    features = _checked_features(state, request)
    records: list[Message] = []
    if not is_same:
        # Also for a broker that was unregistered: it may still be an eligible leader, and nothing
        # says that it comes back with the same logs.
        was_clean = (
            tells_clean_stops
            and existing is not None
            and request.previous_broker_epoch == existing.epoch
        )
        records += _end_incarnation(state, request.broker_id, was_clean=was_clean)
    registration = BrokerRegistration(
        id=request.broker_id,
        epoch=existing.epoch if existing is not None and is_same else state.log_end,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(
            Endpoint(at.name, at.host, at.port, at.security_protocol) for at in request.listeners
        ),
        features=features,
        rack=request.rack,
        fenced=existing.fenced if existing is not None and is_same else True,
        in_controlled_shutdown=(
            existing.in_controlled_shutdown if existing is not None and is_same else False
        ),
        log_dirs=tuple(request.log_dirs)
        if state.image.metadata_version >= LEVEL_DIRECTORIES
        else (),
        cordoned_log_dirs=existing.cordoned_log_dirs if existing and is_same else None,
    )
    records.append(registration.to_record())
    state.sessions[registration.id] = Session(now, registration.fenced)
    return Decision(records, registration.epoch, in_parts=True)


def _is_alive(state: ControllerState, broker: BrokerRegistration, now: float) -> bool:
    session = state.sessions.get(broker.id)
    if session is None or broker.fenced:
        return False
    return now <= session.last_contact + state.node.broker_session_timeout_ms / 1000


def _end_incarnation(state: ControllerState, broker_id: int, *, was_clean: bool) -> list[Message]:
    """Returns the records for the replicas of a broker that was restarted. Without a clean shutdown
    (KIP-966: the broker would know its last epoch) it may have lost the end of its logs."""
    if was_clean or not state.elr_enabled:
        found = list(_partitions_in_sync(state, broker_id))
        return updates_for(state, found, leaves=broker_id)
    return updates_for(state, list(_partitions_of(state, broker_id)), lost=broker_id)


def _partitions_of(state: ControllerState, broker_id: int) -> Iterable[tuple[bytes, int]]:
    for topic, index, partition in state.image.partitions():
        if broker_id in partition.isr or broker_id in partition.elr:
            yield topic.id, index


def _partitions_in_sync(state: ControllerState, broker_id: int) -> Iterable[tuple[bytes, int]]:
    for topic, index, partition in state.image.partitions():
        if broker_id in partition.isr:
            yield topic.id, index


def _check_directories(state: ControllerState, request: BrokerRegistrationRequest) -> None:
    if state.image.metadata_version < LEVEL_DIRECTORIES:
        return
    directories = request.log_dirs
    if not directories:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "a broker needs a log directory")
    if not DIRECTORIES_RESERVED.isdisjoint(directories):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "a directory has a reserved id")
    if len(set(directories)) != len(directories):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "two directories have the same id")
    for other in state.image.brokers.values():
        if other.id != request.broker_id and not set(directories).isdisjoint(other.log_dirs):
            raise ApiError(
                ErrorCode.INVALID_REGISTRATION,
                f"broker {other.id} already has one of these directories",
            )


def _checked_features(
    state: ControllerState, request: BrokerRegistrationRequest
) -> dict[str, LevelRange]:
    """Returns the features of a broker; refuses one that does not support the finalized levels.
    A range that lacks the level is refused before a missing metadata.version, as by Kafka."""
    features = {
        feature.name: LevelRange(feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
    }
    finalized = dict.fromkeys(features, 0) | state.image.features
    finalized[METADATA_VERSION] = state.image.metadata_version
    # Those that the broker names come first.
    for name, level in finalized.items():
        if name not in features and METADATA_VERSION not in features:
            raise ApiError(
                ErrorCode.INVALID_REGISTRATION,
                f"broker {request.broker_id} does not say which {METADATA_VERSION} it supports",
            )
        supported = features.get(name, LevelRange(0, 0))
        if level not in supported:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster is at {name} {level}, broker {request.broker_id} supports "
                f"{supported.low} to {supported.high}",
            )
    return features


def heartbeat(
    state: ControllerState, request: BrokerHeartbeatRequest, now: float
) -> Decision[HeartbeatReply]:
    registration = state.check_broker_epoch(request.broker_id, request.broker_epoch)
    broker_id = registration.id
    session = state.sessions.setdefault(broker_id, Session(now, registration.fenced))
    # A decision that could not be written has changed the session and not the image.
    session.fenced = registration.fenced
    registered_at = state.registration_offsets.get(broker_id, -1)
    is_caught_up = request.current_metadata_offset >= registered_at
    before = _standing(session)
    after = _next_standing(state, session, request, is_caught_up=is_caught_up)
    records: list[Message] = []
    if after is not before:
        match after:
            case _Standing.FENCED | _Standing.SHUTDOWN_NOW:
                records += fence_records(state, registration)
            case _Standing.UNFENCED:
                records += _unfence_records(state, registration)
            case _Standing.CONTROLLED_SHUTDOWN:
                records += _controlled_shutdown_records(state, registration)
                session.shutdown_offset = state.log_end + max(len(records) - 1, 0)
    session.last_contact = now
    session.metadata_offset = request.current_metadata_offset
    session.fenced = after in (_Standing.FENCED, _Standing.SHUTDOWN_NOW)
    if session.fenced:
        session.shutdown_offset = -1
    records += _offline_directory_records(state, registration, request.offline_log_dirs)
    records += _cordon_records(state, registration, request.cordoned_log_dirs)
    reply = HeartbeatReply(
        is_caught_up=is_caught_up,
        is_fenced=session.fenced,
        should_shut_down=after is _Standing.SHUTDOWN_NOW,
    )
    return Decision(records, reply, in_parts=True)


def _standing(session: Session) -> _Standing:
    if session.shutting_down:
        return _Standing.CONTROLLED_SHUTDOWN
    return _Standing.FENCED if session.fenced else _Standing.UNFENCED


def _next_standing(
    state: ControllerState,
    session: Session,
    request: BrokerHeartbeatRequest,
    *,
    is_caught_up: bool,
) -> _Standing:
    match _standing(session):
        case _Standing.FENCED:
            if request.want_shut_down:
                return _Standing.SHUTDOWN_NOW
            wants_in = not request.want_fence
            return _Standing.UNFENCED if wants_in and is_caught_up else _Standing.FENCED
        case _Standing.UNFENCED:
            if request.want_fence:
                return _Standing.SHUTDOWN_NOW if request.want_shut_down else _Standing.FENCED
            if not request.want_shut_down:
                return _Standing.UNFENCED
            leads = _leads_any(state, request.broker_id)
            return _Standing.CONTROLLED_SHUTDOWN if leads else _Standing.SHUTDOWN_NOW
        case _:
            # It may stop once it leads nothing and every other broker has applied that.
            if _leads_any(state, request.broker_id):
                return _Standing.CONTROLLED_SHUTDOWN
            others = [
                other.metadata_offset
                for other in state.sessions.values()
                if not other.fenced and not other.shutting_down
            ]
            known_to_all = session.shutdown_offset <= min(others, default=session.shutdown_offset)
            return _Standing.SHUTDOWN_NOW if known_to_all else _Standing.CONTROLLED_SHUTDOWN


def _leads_any(state: ControllerState, broker_id: int) -> bool:
    return any(partition.leader == broker_id for _, _, partition in state.image.partitions())


def fence_records(state: ControllerState, registration: BrokerRegistration) -> list[Message]:
    """Removes a broker from all in-sync sets, then fences it."""
    found = list(_partitions_in_sync(state, registration.id))
    return [
        *updates_for(state, found, leaves=registration.id),
        BrokerRegistrationChangeRecord(
            broker_id=registration.id, broker_epoch=registration.epoch, fenced=_FENCE
        ),
    ]


def _unfence_records(state: ControllerState, registration: BrokerRegistration) -> list[Message]:
    """Unfences a broker, then makes it the leader of partitions without one."""
    return [
        BrokerRegistrationChangeRecord(
            broker_id=registration.id, broker_epoch=registration.epoch, fenced=_UNFENCE
        ),
        *updates_for(state, partitions_without_leader(state), joins=registration.id),
    ]


def _controlled_shutdown_records(
    state: ControllerState, registration: BrokerRegistration
) -> list[Message]:
    records: list[Message] = []
    if not registration.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=registration.id,
                broker_epoch=registration.epoch,
                in_controlled_shutdown=_IN_CONTROLLED_SHUTDOWN,
            )
        )
    found = list(_partitions_in_sync(state, registration.id))
    return records + updates_for(state, found, leaves=registration.id)


def _offline_directory_records(
    state: ControllerState, registration: BrokerRegistration, offline: Iterable[bytes]
) -> list[Message]:
    """Returns the records that take the replicas in failed directories offline."""
    failed = set(offline) & set(registration.log_dirs)
    if not failed:
        return []
    found = [
        (topic.id, index)
        for topic, index, partition in state.image.partitions()
        if registration.id in partition.replicas
        and partition.directory_of(registration.id) in failed
    ]
    return [
        *updates_for(state, found, leaves=registration.id),
        BrokerRegistrationChangeRecord(
            broker_id=registration.id,
            broker_epoch=registration.epoch,
            log_dirs=[known for known in registration.log_dirs if known not in failed],
        ),
    ]


def _cordon_records(
    state: ControllerState, registration: BrokerRegistration, cordoned: list[bytes] | None
) -> list[Message]:
    if cordoned is None or state.image.metadata_version < LEVEL_CORDONED_DIRECTORIES:
        return []
    if set(registration.cordoned_log_dirs or ()) == set(cordoned):
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=registration.id,
            broker_epoch=registration.epoch,
            cordoned_log_dirs=list(cordoned),
        )
    ]


def next_fencing(state: ControllerState) -> float:
    """Returns when the next session may expire."""
    timeout = state.node.broker_session_timeout_ms / 1000
    return min(
        (session.last_contact + timeout for _, session in _may_fall_silent(state)),
        default=float("inf"),
    )


def _may_fall_silent(state: ControllerState) -> Iterable[tuple[int, Session]]:
    """Yields the brokers whose sessions can expire: all but the one in this process, which is
    alive while this code runs and must not fence itself after a pause."""
    own = state.node.node_id if state.node.is_broker else None
    for broker_id, session in state.sessions.items():
        registration = state.image.brokers.get(broker_id)
        if registration is not None and not registration.fenced and broker_id != own:
            yield broker_id, session


def fence_stale(state: ControllerState, now: float) -> Decision[int | None]:
    """Fences the broker whose session expired first, if any. One at a time, so that the next
    decision sees the new leaders."""
    timeout = state.node.broker_session_timeout_ms / 1000
    silent = [
        (session.last_contact, broker_id)
        for broker_id, session in _may_fall_silent(state)
        if session.last_contact + timeout < now
    ]
    if not silent:
        return Decision((), None)
    _, broker_id = min(silent)
    session = state.sessions[broker_id]
    session.fenced = True
    session.shutdown_offset = -1
    records = fence_records(state, state.image.brokers[broker_id])
    return Decision(records, broker_id, in_parts=True)


def fence_gone(state: ControllerState, broker_id: int, epoch: int) -> Decision[None]:
    """Fences a broker whose process has ended, unless it has registered again meanwhile."""
    registration = state.image.brokers.get(broker_id)
    if registration is None or registration.epoch != epoch or registration.fenced:
        return Decision((), None)
    session = state.sessions.get(broker_id)
    if session is not None:
        session.fenced = True
        session.shutdown_offset = -1
    return Decision(fence_records(state, registration), None, in_parts=True)


def unregister_broker(state: ControllerState, broker_id: int) -> Decision[None]:
    registration = state.image.brokers.get(broker_id)
    if registration is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    records = updates_for(state, list(_partitions_of(state, broker_id)), leaves=broker_id)
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=registration.epoch))
    return Decision(records, None, in_parts=True)


def register_controller(
    state: ControllerState, request: ControllerRegistrationRequest
) -> Decision[None]:
    """Registers a controller, so that features are raised only to levels that it supports."""
    if state.image.metadata_version < LEVEL_CONTROLLER_REGISTRATION:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"controllers register from metadata.version {LEVEL_CONTROLLER_REGISTRATION} on",
        )
    for feature in request.features:  # one that it does not name is not checked, as in Kafka
        level = state.image.features.get(feature.name, 0)
        if not feature.min_supported_version <= level <= feature.max_supported_version:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster is at {feature.name} {level}, controller {request.controller_id} "
                f"supports {feature.min_supported_version} to {feature.max_supported_version}",
            )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=[
            ControllerEndpoint(
                name=at.name, host=at.host, port=at.port, security_protocol=at.security_protocol
            )
            for at in request.listeners
        ],
        features=[
            ControllerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
    )
    return Decision((record,), None)


# Producer ids


class ProducerIdBlock(NamedTuple):
    first: int
    size: int


def allocate_producer_ids(
    state: ControllerState, *, broker_id: int, broker_epoch: int
) -> Decision[ProducerIdBlock]:
    """Hands out a block, so that the log sees one record for a thousand ids."""
    state.check_broker_epoch(broker_id, broker_epoch)
    first = state.image.next_producer_id
    if first > _PRODUCER_ID_MAX - _PRODUCER_ID_BLOCK:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been handed out")
    record = ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + _PRODUCER_ID_BLOCK
    )
    return Decision((record,), ProducerIdBlock(first, _PRODUCER_ID_BLOCK))
