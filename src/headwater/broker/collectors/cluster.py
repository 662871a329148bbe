"""The cluster as this node sees it: the metadata quorum, and on the active controller what it
decides about: brokers, topics, leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.broker.controller_driver import ControllerDriver
from headwater.broker.metadata_log import MetadataLog
from headwater.io import Clock
from headwater.metadata import NO_LEADER, Delta, Image, Topic
from headwater.model import NO_NODE
from headwater.observability.histogram import SHARES, RecentQuantiles
from headwater.observability.measures import Traffic
from headwater.observability.registry import NO_LABELS, Family, Item, Labels, Quantiles, Sample, one

_CONTROLLER = "kafka_controller_kafkacontroller"
_RAFT = "kafka_server_raft_metrics"
# The rules of Strimzi write this name and the next without underscores.
_STRIMZI = "kafka_server_raftmetrics"
_RAFT_NAMES = (_RAFT, _STRIMZI)
_CHANNEL = "kafka_server_raftchannelmetrics"
_BROKER = "kafka_server_broker_metadata_metrics"
_LOADER = "kafka_server_metadataloader"
_EVENTS = "kafka_controller_controllereventmanager_eventqueueprocessingtimems"
_ELECTIONS = "kafka_controller_controllerstats"
_AT_ONCE = 1000  # partitions that are looked at in one step


class Elections:
    """Elections of partition leaders that this node has seen as the active controller."""

    def __init__(self, is_active: Callable[[], bool]) -> None:
        self.count = 0
        self.unclean = 0
        self._is_active = is_active

    def follow(self, image: Image, delta: Delta) -> None:
        if not delta.partitions or not self._is_active():
            return
        for (topic_id, index), before in delta.partitions.items():
            topic = image.topics_by_id.get(topic_id)
            after = topic.partitions.get(index) if topic is not None else None
            if before is None or after is None:
                continue
            if after.leader in (before.leader, NO_LEADER):
                continue
            self.count += 1
            self.unclean += after.leader not in (*before.isr, *before.elr)


class _Totals:
    """The partitions of the cluster, counted."""

    def __init__(self) -> None:
        self.partitions = self.without_leader = self.not_preferred = 0
        self.by_topic: list[tuple[str, int]] = []


class ClusterCollector:
    def __init__(
        self,
        metadata: MetadataLog,
        controller: ControllerDriver | None,
        clock: Clock,
        *,
        quorum: Traffic,
        idle: Callable[[], float],
    ) -> None:
        """`controller` is None on a node that is only a broker; `quorum` counts what this node asks
        of the others, `idle` tells the idle share of the event loop."""
        self._clock = clock
        self._traffic = quorum
        self._idle = idle
        self._leaders = 0  # controllers that this node has seen become active
        self._epoch = -1  # of the last one
        metadata.on_leader_changed(self._on_leader)
        self._processing = RecentQuantiles()
        self.elections = Elections(lambda: controller is not None and controller.is_active)
        self._metadata = metadata
        self._controller = controller

    def collect(self) -> Iterator[Item]:
        yield from self._quorum()
        controller = self._controller
        if controller is None:
            return
        yield from self._applied(
            _CONTROLLER,
            "lastappliedrecordoffset",
            "lastappliedrecordtimestamp",
            "lastappliedrecordlagms",
        )
        for name, what, value in (
            (
                "lastcommittedrecordoffset",
                "The last committed offset of the metadata that this node knows of.",
                self._metadata.raft.high_watermark - 1,
            ),
            (
                "metadataerrorcount",
                "Changes of the metadata that a part of this node failed to apply.",
                self._metadata.meter.apply_errors,
            ),
            (
                "newactivecontrollerscount",
                "Elections of an active controller that this node has seen.",
                self._leaders,
            ),
        ):
            yield from one(f"{_CONTROLLER}_{name}", "gauge", what, value)
        yield Family(
            _EVENTS,
            "summary",
            "Milliseconds for each command of the controller, without the wait for its commit; "
            "quantiles of the last one to two minutes.",
        )
        processing = controller.processing
        recent = self._processing.read(processing, SHARES, self._clock.monotonic())
        in_ms = tuple((share, 1000 * seconds) for share, seconds in recent)
        yield Quantiles(NO_LABELS, in_ms, processing.count, 1000 * processing.total)
        is_active = controller.is_active
        yield from one(
            f"{_CONTROLLER}_activecontrollercount",
            "gauge",
            "1 on the active controller.",
            int(is_active),
        )
        yield Family(
            f"{_ELECTIONS}_leaderelectionrateandtimems",
            "summary",
            "Leader changes while this node was the active controller; their durations are not "
            "measured.",
        )
        yield Quantiles(NO_LABELS, (), self.elections.count, None)
        yield from one(
            f"{_ELECTIONS}_uncleanleaderelections_total",
            "counter",
            "Elections of leaders outside the in-sync set, which may lose records.",
            self.elections.unclean,
        )
        if is_active:
            yield from self._cluster()

    # The quorum

    def _quorum(self) -> Iterator[Item]:
        raft, metadata = self._metadata.raft, self._metadata
        now = self._clock.monotonic()
        commit_mean, commit_most = metadata.meter.commit_ms(now)
        election_mean, election_most = metadata.meter.election_ms(now)
        values = (
            (
                "current_leader",
                "The node that leads the metadata quorum; -1 if there is none.",
                raft.leader_id,
            ),
            ("current_epoch", "The epoch of the metadata quorum.", raft.epoch),
            (
                "high_watermark",
                "The high watermark of the metadata log.",
                raft.high_watermark,
            ),
            ("log_end_offset", "The end of the metadata log on this node.", metadata.log_end),
            ("number_of_voters", "Voters of the metadata quorum.", len(raft.voters.voters)),
            (
                "current_vote",
                "The node that this node voted for in this epoch; -1 if it has not voted.",
                NO_NODE if raft.voted is None else raft.voted.id,
            ),
            (
                "append_records_rate",
                "Records per second that this node appended as the leader, in the last minute.",
                metadata.meter.appended_rate(now),
            ),
            (
                "fetch_records_rate",
                "Records per second that this node fetched from the leader, in the last minute.",
                metadata.meter.fetched_rate(now),
            ),
            (
                "commit_latency_avg",
                "Mean time from an append on the leader to its commit in the last minute, in ms.",
                commit_mean,
            ),
            (
                "commit_latency_max",
                "Longest time from an append on the leader to its commit, likewise.",
                commit_most,
            ),
            (
                "election_latency_avg",
                "Mean time from a request of this node for votes to its knowing the leader, in the "
                "last minute, in ms.",
                election_mean,
            ),
            (
                "election_latency_max",
                "Longest time from a request of this node for votes to its knowing the leader, "
                "likewise.",
                election_most,
            ),
            (
                "poll_idle_ratio_avg",
                "Share of about the last half minute that the event loop was idle, 0 to 1.",
                self._idle(),
            ),
        )
        for prefix in _RAFT_NAMES:
            for name, what, value in values:
                yield from one(f"{prefix}_{name}", "gauge", what, value)
        role = self._role()
        yield Family(f"{_RAFT}_current_state_info", "gauge", "The role of this node in the quorum.")
        yield Sample(Labels(state=role, current_state=role), 1)
        yield Family(f"{_STRIMZI}_current_state", "gauge", "The role of this node in the quorum.")
        yield Sample(Labels(current_state=role), 1)
        yield from self._channel()
        yield from self._applied(
            _BROKER,
            "last_applied_record_offset",
            "last_applied_record_timestamp",
            "last_applied_record_lag_ms",
        )
        yield from one(
            f"{_BROKER}_metadata_apply_error_count",
            "gauge",
            "Changes of the metadata that a part of this node failed to apply.",
            metadata.meter.apply_errors,
        )
        yield from self._levels()
        yield from one(
            "headwater_metadata_lag_records",
            "gauge",
            "Committed metadata records that this node knows of and has not applied yet.",
            max(0, raft.high_watermark - metadata.applied),
        )
        if not metadata.is_leader:
            return
        quorum = metadata.describe_quorum()
        yield from one(
            f"{_RAFT}_number_of_observers",
            "gauge",
            "Observers of the metadata quorum; reported by its leader.",
            len(quorum.observers),
        )
        yield Family(
            "headwater_quorum_replica_lag_records",
            "gauge",
            "Lag of a voter or observer in records; reported by the leader of the quorum.",
        )
        for kind, replicas in (("voter", quorum.voters), ("observer", quorum.observers)):
            for each in replicas:
                yield Sample(
                    Labels(replica=each.key.id, kind=kind), max(0, metadata.log_end - each.log_end)
                )

    def _channel(self) -> Iterator[Item]:
        """What this node asks of the others."""
        for name, what, value in (
            ("request", "Requests to other nodes of the quorum.", self._traffic.requests),
            ("response", "Their responses.", self._traffic.responses),
            ("outgoing_byte", "Bytes of these requests.", self._traffic.bytes_out),
            ("incoming_byte", "Bytes of these responses.", self._traffic.bytes_in),
        ):
            yield from one(f"{_CHANNEL}_{name}_total", "counter", what, value)

    def _applied(self, prefix: str, offset: str, timestamp: str, lag_ms: str) -> Iterator[Item]:
        applied_ms = self._metadata.meter.applied_ms
        since_ms = self._clock.wall_ms() - applied_ms if applied_ms else 0
        for name, what, value in (
            (
                offset,
                "The last offset of the metadata that this node has applied.",
                self._metadata.applied - 1,
            ),
            (timestamp, "When that record was written, in ms since 1970.", applied_ms),
            (lag_ms, "Milliseconds since that record was written.", max(0, since_ms)),
        ):
            yield from one(f"{prefix}_{name}", "gauge", what, value)

    def _levels(self) -> Iterator[Item]:
        image = self._metadata.image
        yield from one(
            f"{_LOADER}_currentmetadataversion",
            "gauge",
            "The level of metadata.version.",
            image.metadata_version,
        )
        yield Family(f"{_LOADER}_finalizedlevel", "gauge", "The level of a feature.")
        for feature, level in tuple(image.features.items()):
            yield Sample(Labels(featureName=_camel_case(feature)), level)

    def _on_leader(self) -> None:
        leader = self._metadata.leader
        if leader is not None and leader.epoch > self._epoch:
            self._epoch = leader.epoch
            self._leaders += 1

    def _role(self) -> str:
        raft = self._metadata.raft
        is_voter = raft.voters.has(raft.me)
        return raft.role.value if is_voter or raft.role.value != "follower" else "observer"

    # Told by the active controller

    def _cluster(self) -> Iterator[Item]:
        image = self._metadata.image
        brokers = list(image.brokers.values())
        totals = _Totals()
        for topic in tuple(image.topics.values()):
            yield from self._count(topic, totals)
        for name, what, value in (
            (
                "activebrokercount",
                "Brokers that are not fenced.",
                sum(b.is_active for b in brokers),
            ),
            ("fencedbrokercount", "Brokers that are fenced.", sum(b.fenced for b in brokers)),
            ("globaltopiccount", "Topics.", len(totals.by_topic)),
            ("globalpartitioncount", "Partitions.", totals.partitions),
            ("offlinepartitionscount", "Partitions without a leader.", totals.without_leader),
            (
                "preferredreplicaimbalancecount",
                "Partitions that are not led by their preferred replica.",
                totals.not_preferred,
            ),
        ):
            yield from one(f"{_CONTROLLER}_{name}", "gauge", what, value)
        live = [each for each in brokers if each.is_active]
        yield from one("kafka_brokers", "gauge", "Brokers that are not fenced.", len(live))
        yield Family("kafka_broker_info", "gauge", "An unfenced broker and its address.")
        for each in live:
            if each.endpoints:
                at = each.endpoints[0]
                yield Sample(Labels(id=each.id, address=f"{at.host}:{at.port}"), 1)
        yield Family("kafka_topic_partitions", "gauge", "Partitions of a topic.")
        for name, count in totals.by_topic:
            yield Sample(Labels(topic=name), count)

    def _count(self, topic: Topic, totals: _Totals) -> Iterator[Item]:
        """Counts the partitions of a topic, of which there may be many."""
        states = tuple(topic.partitions.values())
        totals.by_topic.append((topic.name, len(states)))
        totals.partitions += len(states)
        for at, state in enumerate(states):
            if state.leader == NO_LEADER:
                totals.without_leader += 1
            if state.leader != state.preferred_leader:
                totals.not_preferred += 1
            if at % 10 == 0:
                yield None


def _camel_case(feature: str) -> str:
    """Returns the name of a feature as Kafka has it in a label: `metadataVersion`."""
    first, *others = feature.split(".")
    return first + "".join(word.capitalize() for word in others)
