"""The controller's state: the image of the cluster, settings, and sessions of brokers.

The image comes only from the log. Sessions are soft: a new controller starts them again, and no
record has the time of a heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from headwater.config import BrokerLayers, NodeConfig, TopicConfig, TopicDefaults
from headwater.controller.partition_change import Rules
from headwater.controller.placement import UsableBroker
from headwater.controller.policies import Policies
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import (
    CLUSTER_DEFAULT,
    BrokerRegistration,
    Image,
    PartitionState,
    Replay,
    Resource,
    ResourceType,
    Topic,
)
from headwater.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    LEVEL_DIRECTORIES,
    LEVEL_NO_EPOCH_BUMP_ON_SHRINK,
)
from headwater.metadata.model import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
)


@dataclass(slots=True)
class Session:
    """A broker's session, kept alive by heartbeats."""

    last_contact: float
    fenced: bool
    metadata_offset: int = -1
    # Offset that all others must have applied before this broker may stop; -1 if it does not stop.
    shutdown_offset: int = -1

    @property
    def shutting_down(self) -> bool:
        return self.shutdown_offset >= 0


@dataclass(slots=True)
class ControllerState:
    cluster_id: str
    node: NodeConfig  # static settings; dynamic ones come from the image
    random: Random
    policies: Policies = Policies()
    replay: Replay = field(default_factory=Replay)
    log_end: int = 0  # the next record's offset
    sessions: dict[int, Session] = field(default_factory=dict)
    registration_offsets: dict[int, int] = field(default_factory=dict)
    token_ids: dict[bytes, str] | None = None  # by HMAC; known once a request names a token
    _defaults: TopicDefaults | None = None
    _plain: TopicConfig | None = None  # of a topic without settings of its own
    _topic_configs: dict[str, TopicConfig] = field(default_factory=dict)  # of topics that exist

    @property
    def image(self) -> Image:
        return self.replay.image

    def new_id(self) -> bytes:
        """Returns a random id, a version 4 UUID whose text does not start with a dash."""
        while True:
            raw = bytearray(self.random.randbytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            if raw[0] >> 2 != 62 and bytes(raw) not in self.image.topics_by_id:
                return bytes(raw)

    # Settings

    @property
    def layers(self) -> BrokerLayers:
        own = Resource(ResourceType.BROKER, str(self.node.node_id))
        return BrokerLayers(
            self.image.config(own), self.image.config(CLUSTER_DEFAULT), self.node.layers.static
        )

    @property
    def topic_defaults(self) -> TopicDefaults:
        if self._defaults is None:
            self._defaults = TopicDefaults(self.layers)
        return self._defaults

    def on_configs_changed(self, resources: Iterable[Resource]) -> None:
        for resource in resources:
            if resource.type == ResourceType.BROKER:
                self._defaults = self._plain = None
                self._topic_configs.clear()
            elif resource.type == ResourceType.TOPIC:
                self._topic_configs.pop(resource.name, None)

    def topic_config(self, topic: Topic) -> TopicConfig:
        """Returns the settings of a topic; cached, since elections need them for each partition."""
        known = self._topic_configs.get(topic.name)
        if known is None:
            overrides: Mapping[str, str] = self.image.config(
                Resource(ResourceType.TOPIC, topic.name)
            )
            known = self.topic_defaults.config(overrides) if overrides else self._plain_config
            self._topic_configs[topic.name] = known
        return known

    @property
    def _plain_config(self) -> TopicConfig:
        if self._plain is None:
            self._plain = self.topic_defaults.config()
        return self._plain

    @property
    def elr_enabled(self) -> bool:
        return self.image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) >= 1

    # Brokers

    def active(self, broker_id: int) -> bool:
        registration = self.image.brokers.get(broker_id)
        return registration is not None and registration.is_active

    def is_known_node(self, node_id: int) -> bool:
        """Returns whether there is a broker or a controller with this id."""
        voters = {voter.node_id for voter in self.node.controller_quorum_voters}
        image = self.image
        return node_id in image.brokers or node_id in image.controllers or node_id in voters

    def usable_brokers(self) -> Iterable[UsableBroker]:
        """Returns the brokers that can get new replicas."""
        for registration in self.image.brokers.values():
            session = self.sessions.get(registration.id)
            leaves = session is not None and session.shutting_down
            cordoned = registration.cordoned_log_dirs or ()
            if not leaves and not (cordoned and set(registration.log_dirs) <= set(cordoned)):
                yield UsableBroker(registration.id, registration.rack, registration.fenced)

    def check_broker_epoch(self, broker_id: int, epoch: int) -> BrokerRegistration:
        registration = self.image.brokers.get(broker_id)
        if registration is None:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
        if registration.epoch != epoch:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {broker_id} has epoch {registration.epoch}, not {epoch}",
            )
        return registration

    def default_directory(self, broker_id: int) -> bytes:
        """Returns the directory of a new replica: known at once if the broker has only one. Below
        the level that knows directories, brokers are registered without any."""
        registration = self.image.brokers.get(broker_id)
        if registration is not None and not registration.log_dirs:
            return DIRECTORY_MIGRATING
        if registration is not None and len(registration.log_dirs) == 1:
            return registration.log_dirs[0]
        return DIRECTORY_UNASSIGNED

    def may_lead(self, broker_id: int, state: PartitionState) -> bool:
        """Returns whether this broker and the directory of the replica are online."""
        registration = self.image.brokers.get(broker_id)
        return (
            registration is not None
            and registration.is_active
            and directory_is_online(registration, broker_id, state)
        )

    # Partitions

    def min_isr(self, topic: Topic) -> int:
        """Returns the setting, but at most the number of replicas."""
        replicas = len(topic.partitions[0].replicas) if 0 in topic.partitions else 1
        return min(self.topic_config(topic).min_insync_replicas, replicas)

    def rules(
        self,
        topic: Topic,
        state: PartitionState,
        *,
        joins: int | None = None,
        leaves: int | None = None,
    ) -> Rules:
        """Returns the rules for a partition while `joins` is about to be unfenced, or `leaves` to
        be fenced: the image does not have that yet."""

        def is_acceptable(broker_id: int) -> bool:
            if broker_id == leaves:
                return False
            if broker_id == joins:
                registration = self.image.brokers[broker_id]
                return directory_is_online(registration, broker_id, state)
            return self.may_lead(broker_id, state)

        return Rules(
            is_acceptable_leader=is_acceptable,
            min_isr=self.min_isr(topic),
            elr_enabled=self.elr_enabled,
            directories=self.default_directory,
            has_directories=self.image.metadata_version >= LEVEL_DIRECTORIES,
            epoch_bump_on_shrink=self.image.metadata_version < LEVEL_NO_EPOCH_BUMP_ON_SHRINK,
        )


def directory_is_online(
    registration: BrokerRegistration, broker_id: int, state: PartitionState
) -> bool:
    return broker_id in state.replicas and registration.has_online(state.directory_of(broker_id))
