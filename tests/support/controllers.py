"""A controller with brokers, for tests that ask it for decisions."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TypeVar

from headwater.config import node_config
from headwater.controller import Controller, Decision
from headwater.metadata import PartitionState
from headwater.metadata.features import LEVEL_LATEST, default_levels, supported_features
from headwater.metadata.records import decode_record, encode_record
from headwater.metadata.snapshot import feature_records
from headwater.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from headwater.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from headwater.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)

R = TypeVar("R")
CLUSTER = "AAAAAAAAQACAAAAAAAAAAQ"
CONTROLLER_ID = 100  # a node of its own, unless a test says otherwise


def directory_of(broker_id: int) -> bytes:
    return bytes([200, broker_id]) * 8


def incarnation_of(broker_id: int, life: int = 1) -> bytes:
    return bytes([life, broker_id]) * 8


class Bench:
    """The controller, its clock, and its log reduced to an offset."""

    def __init__(
        self,
        brokers: Iterable[int] = (),
        *,
        node_id: int = CONTROLLER_ID,
        metadata_version: int = LEVEL_LATEST,
        settings: dict[str, str] | None = None,
        racks: dict[int, str] | None = None,
    ) -> None:
        config = node_config({"log.dirs": "/d", "node.id": str(node_id)} | (settings or {}))
        self.machine = Controller(CLUSTER, config, Random(1))
        self.now = 100.0
        self.offset = 0
        bootstrap = list(feature_records(default_levels(metadata_version)))
        self.do(self.machine.decide_activate(bootstrap, log_is_empty=True))
        self.machine.on_loaded(self.now)
        for broker_id in brokers:
            self.join(broker_id, rack=(racks or {}).get(broker_id))

    def do(self, decision: Decision[R]) -> R:
        """Writes what was decided, as the driver would. Other nodes read the same records."""
        if decision.records:
            level = self.machine.image.metadata_version
            for record in decision.records:
                assert decode_record(encode_record(record, level)) == record
            self.machine.apply(decision.records, self.offset)
            self.offset += len(decision.records)
        return decision.reply

    def registration(
        self, broker_id: int, *, life: int = 1, rack: str | None = None, previous_epoch: int = -1
    ) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER,
            incarnation_id=incarnation_of(broker_id, life),
            listeners=[
                Listener(name="PLAINTEXT", host=f"h{broker_id}", port=9092, security_protocol=0)
            ],
            features=[
                Feature(
                    name=name, min_supported_version=levels.low, max_supported_version=levels.high
                )
                for name, levels in supported_features().items()
            ],
            rack=rack,
            log_dirs=[directory_of(broker_id)],
            previous_broker_epoch=previous_epoch,
        )

    def join(
        self, broker_id: int, *, life: int = 1, rack: str | None = None, previous_epoch: int = -1
    ) -> int:
        """Registers a broker and takes it in; its epoch."""
        request = self.registration(broker_id, life=life, rack=rack, previous_epoch=previous_epoch)
        is_own = broker_id == self.machine.state.node.node_id
        epoch = self.do(self.machine.decide_register_broker(request, self.now, is_own=is_own))
        self.do(self.machine.decide_heartbeat(self.heartbeat(broker_id), self.now))
        return epoch

    def heartbeat(
        self,
        broker_id: int,
        *,
        offset: int | None = None,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline: Iterable[bytes] = (),
    ) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.machine.image.brokers[broker_id].epoch,
            current_metadata_offset=self.offset - 1 if offset is None else offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=list(offline),
            cordoned_log_dirs=[],
        )

    def fence(self, broker_id: int) -> None:
        request = self.heartbeat(broker_id, want_fence=True)
        self.do(self.machine.decide_heartbeat(request, self.now))

    def unfence(self, broker_id: int) -> None:
        self.do(self.machine.decide_heartbeat(self.heartbeat(broker_id), self.now))

    def create(
        self,
        name: str,
        partitions: int = 1,
        replicas: int = 1,
        *,
        assignments: Iterable[tuple[int, list[int]]] = (),
        configs: dict[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> CreatableTopicResult:
        request = CreateTopicsRequest(
            topics=[topic(name, partitions, replicas, assignments=assignments, configs=configs)],
            validate_only=validate_only,
        )
        (result,) = self.do(self.machine.decide_create_topics(request))
        return result

    def partition(self, name: str, index: int = 0) -> PartitionState:
        found = self.machine.image.partition(name, index)
        assert found is not None
        return found


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    assignments: Iterable[tuple[int, list[int]]] = (),
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )
