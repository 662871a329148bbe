"""The controller: all commands that requests can give.

`decide_*` reads the state and returns a decision; only `apply` changes the durable state. Each area
is a module of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from headwater.config import NodeConfig
from headwater.config.alter import Alteration
from headwater.controller import (
    acls,
    brokers,
    configs,
    directories,
    elections,
    features,
    topics,
)
from headwater.controller.decision import Decision
from headwater.controller.policies import Policies
from headwater.controller.state import ControllerState, Session
from headwater.errors import ApiError
from headwater.metadata import (
    CLUSTER_DEFAULT,
    Delta,
    Image,
    Replay,
    Resource,
    ResourceType,
)
from headwater.protocol import Message
from headwater.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponseTopicData,
)
from headwater.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResult,
)
from headwater.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponseDirectoryData,
)
from headwater.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from headwater.protocol.messages.broker_registration import BrokerRegistrationRequest
from headwater.protocol.messages.controller_registration import ControllerRegistrationRequest
from headwater.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from headwater.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopicResult,
)
from headwater.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest
from headwater.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest
from headwater.protocol.messages.elect_leaders import ElectLeadersRequest, ReplicaElectionResult
from headwater.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from headwater.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from headwater.protocol.records.metadata_nodes import (
    NoOpRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from headwater.protocol.records.metadata_security import DelegationTokenRecord
from headwater.security.acls import Rule, RuleFilter
from headwater.security.principal import Principal

if TYPE_CHECKING:
    from headwater.controller.quotas import QuotaChange
    from headwater.quotas.entities import Entity


class Controller:
    def __init__(
        self,
        cluster_id: str,
        node: NodeConfig,
        random: Random,
        policies: Policies = Policies(),  # noqa: B008  # immutable
    ) -> None:
        self.state = ControllerState(cluster_id, node, random, policies)

    @property
    def image(self) -> Image:
        """The image with all decisions, committed or not: for deciding, not for responses."""
        return self.state.image

    # Durable state

    def load(self, replay: Replay, registration_offsets: dict[int, int], log_end: int) -> None:
        """Loads the state of the log; takes ownership of `replay`."""
        self.state.replay = replay
        self.state.registration_offsets = registration_offsets
        self.state.log_end = log_end
        self.state.token_ids = None
        self.state.on_configs_changed((CLUSTER_DEFAULT,))

    def on_loaded(self, now: float) -> None:
        """Resets the soft state: every broker gets a full session timeout."""
        self.state.sessions = {
            broker.id: Session(now, broker.fenced) for broker in self.image.brokers.values()
        }

    def apply(self, records: Sequence[Message], base_offset: int) -> None:
        """Applies the records of one batch, the first at `base_offset`."""
        delta = self.state.replay.apply(records)
        self.state.log_end = base_offset + len(records)
        self._follow(records, base_offset, delta)

    def _follow(self, records: Sequence[Message], base_offset: int, delta: Delta) -> None:
        self.state.on_configs_changed(delta.configs)
        for topic in delta.topics_deleted.values():
            self.state.on_configs_changed((Resource(ResourceType.TOPIC, topic.name),))
        if delta.tokens and self.state.token_ids is not None:
            from headwater.controller import tokens

            tokens.follow(self.state, delta.tokens)
        if not delta.brokers:
            return
        for number, record in enumerate(records):
            match record:
                case RegisterBrokerRecord():
                    self.state.registration_offsets[record.broker_id] = base_offset + number
                case UnregisterBrokerRecord():
                    self.state.registration_offsets.pop(record.broker_id, None)
                    self.state.sessions.pop(record.broker_id, None)

    # Activation

    def decide_activate(
        self, bootstrap: Sequence[Message], *, log_is_empty: bool
    ) -> Decision[None]:
        return features.activate(self.state, bootstrap, log_is_empty=log_is_empty)

    def decide_no_op(self) -> Decision[None]:
        return Decision((NoOpRecord(),), None)

    # Nodes

    def decide_register_broker(
        self,
        request: BrokerRegistrationRequest,
        now: float,
        *,
        is_own: bool = False,
        tells_clean_stops: bool = True,
    ) -> Decision[int]:
        return brokers.register_broker(
            self.state, request, now, is_own=is_own, tells_clean_stops=tells_clean_stops
        )

    def decide_heartbeat(
        self, request: BrokerHeartbeatRequest, now: float
    ) -> Decision[brokers.HeartbeatReply]:
        return brokers.heartbeat(self.state, request, now)

    def decide_fence_stale(self, now: float) -> Decision[int | None]:
        return brokers.fence_stale(self.state, now)

    def decide_fence_gone(self, broker_id: int, epoch: int) -> Decision[None]:
        return brokers.fence_gone(self.state, broker_id, epoch)

    def next_fencing(self) -> float:
        return brokers.next_fencing(self.state)

    def decide_unregister_broker(self, broker_id: int) -> Decision[None]:
        return brokers.unregister_broker(self.state, broker_id)

    def decide_register_controller(self, request: ControllerRegistrationRequest) -> Decision[None]:
        return brokers.register_controller(self.state, request)

    def decide_allocate_producer_ids(
        self, *, broker_id: int, broker_epoch: int
    ) -> Decision[brokers.ProducerIdBlock]:
        return brokers.allocate_producer_ids(
            self.state, broker_id=broker_id, broker_epoch=broker_epoch
        )

    def decide_update_features(
        self,
        updates: list[features.FeatureUpdate],
        *,
        validate_only: bool,
        kraft_version: int = 0,
    ) -> Decision[None]:
        return features.update_features(
            self.state, updates, validate_only=validate_only, kraft_version=kraft_version
        )

    # Topics

    def decide_create_topics(
        self,
        request: CreateTopicsRequest,
        *,
        take: topics.Take = topics.take_freely,
        may_create: topics.Allowed = lambda _: True,
        may_describe: topics.Allowed = lambda _: True,
    ) -> Decision[list[CreatableTopicResult]]:
        return topics.create_topics(
            self.state, request, take=take, may_create=may_create, may_describe=may_describe
        )

    def decide_delete_topics(
        self,
        request: DeleteTopicsRequest,
        *,
        take: topics.Take = topics.take_freely,
        may_delete: topics.Allowed = lambda _: True,
        may_describe: topics.Allowed = lambda _: True,
    ) -> Decision[list[DeletableTopicResult]]:
        return topics.delete_topics(
            self.state, request, take=take, may_delete=may_delete, may_describe=may_describe
        )

    def decide_create_partitions(
        self,
        request: CreatePartitionsRequest,
        *,
        take: topics.Take = topics.take_freely,
        may_alter: topics.Allowed = lambda _: True,
    ) -> Decision[list[CreatePartitionsTopicResult]]:
        return topics.create_partitions(self.state, request, take=take, may_alter=may_alter)

    def decide_alter_configs(
        self,
        wanted: Sequence[tuple[Resource, Sequence[tuple[str, str | None]]]],
        *,
        validate_only: bool,
    ) -> Decision[configs.Outcome]:
        return configs.alter_configs(self.state, wanted, validate_only=validate_only)

    def decide_incremental_alter_configs(
        self,
        changes: Sequence[tuple[Resource, Sequence[Alteration]]],
        *,
        validate_only: bool,
    ) -> Decision[configs.Outcome]:
        return configs.incremental_alter_configs(self.state, changes, validate_only=validate_only)

    # Users

    def decide_alter_scram_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> Decision[list[AlterUserScramCredentialsResult]]:
        from headwater.controller import users  # with the mechanism, which a node may never need

        return users.alter_scram_credentials(self.state, request)

    def decide_create_token(
        self,
        request: CreateDelegationTokenRequest,
        requester: Principal,
        *,
        now_ms: int,
    ) -> Decision[DelegationTokenRecord]:
        from headwater.controller import tokens

        return tokens.create_token(self.state, request, requester, now_ms=now_ms)

    def decide_renew_token(
        self, request: RenewDelegationTokenRequest, who: Principal, *, now_ms: int
    ) -> Decision[int]:
        from headwater.controller import tokens

        return tokens.renew_token(self.state, request, who, now_ms=now_ms)

    def decide_expire_token(
        self, request: ExpireDelegationTokenRequest, who: Principal, *, now_ms: int
    ) -> Decision[int]:
        from headwater.controller import tokens

        return tokens.expire_token(self.state, request, who, now_ms=now_ms)

    def decide_remove_expired_tokens(self, *, now_ms: int) -> Decision[None]:
        from headwater.controller import tokens

        return tokens.remove_expired(self.state, now_ms=now_ms)

    # Quotas

    def decide_alter_client_quotas(
        self, changes: Sequence[QuotaChange], *, validate_only: bool
    ) -> Decision[dict[Entity, ApiError | None]]:
        from headwater.controller import quotas

        return quotas.alter_client_quotas(self.state, changes, validate_only=validate_only)

    # Access control

    def decide_create_acls(self, rules: Sequence[Rule]) -> Decision[list[ApiError | None]]:
        return acls.create_acls(self.state, rules)

    def decide_delete_acls(
        self, filters: Sequence[RuleFilter]
    ) -> Decision[list[list[Rule] | ApiError]]:
        return acls.delete_acls(self.state, filters)

    # Leaders

    def decide_elect_leaders(
        self, request: ElectLeadersRequest
    ) -> Decision[list[ReplicaElectionResult]]:
        return elections.elect_leaders(self.state, request)

    def decide_alter_partition(
        self, request: AlterPartitionRequest
    ) -> Decision[list[AlterPartitionResponseTopicData]]:
        return elections.alter_partition(self.state, request)

    def decide_assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> Decision[list[AssignReplicasToDirsResponseDirectoryData]]:
        return directories.assign_replicas_to_dirs(self.state, request)

    def decide_balance_leaders(self) -> Decision[None]:
        return elections.balance_leaders(self.state)

    def decide_elect_unclean(self) -> Decision[None]:
        return elections.elect_unclean(self.state)
