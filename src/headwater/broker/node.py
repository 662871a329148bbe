"""A node: all parts, started in order and stopped in the reverse order.

The only module that knows all parts. A node is one process with one event loop; it is a broker, a
controller, or both.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from headwater.broker import node_log
from headwater.broker.broker import Broker, broker_routes
from headwater.broker.broker_channel import BrokerChannel
from headwater.broker.broker_listeners import BrokerListeners
from headwater.broker.cleaning import Cleaning
from headwater.broker.client_telemetry import ClientTelemetry
from headwater.broker.controller_channel import ControllerChannel
from headwater.broker.controller_driver import ControllerDriver
from headwater.broker.controller_membership import ControllerMembership
from headwater.broker.controller_role import ControllerRole, controller_routes
from headwater.broker.coordinators.groups import GroupCoordinator
from headwater.broker.coordinators.transactions import TransactionCoordinator
from headwater.broker.directory_assignments import DirectoryAssignments
from headwater.broker.dispatch import Dispatcher
from headwater.broker.fetch_sessions import FetchSessions
from headwater.broker.formatting import directories_of, format_directories
from headwater.broker.housekeeping import Housekeeping
from headwater.broker.isr_changes import IsrChanges
from headwater.broker.lifecycle import Lifecycle
from headwater.broker.log_moves import LogMoves
from headwater.broker.marker_writer import MarkerWriter
from headwater.broker.metadata_log import MetadataLog
from headwater.broker.on_demand import AutoTopics, ProducerIds
from headwater.broker.partitions import Partitions
from headwater.broker.plugins import PrincipalBuilders, build_authorizer, build_policies
from headwater.broker.quorum_driver import QuorumDriver
from headwater.broker.replica_fetchers import ReplicaFetchers
from headwater.broker.request_watch import RequestWatch
from headwater.broker.start_check import check_start
from headwater.broker.throttling import Throttling
from headwater.broker.transaction_verification import TransactionVerification
from headwater.broker.voter_changes import VoterChanges
from headwater.config import ConfigError, NodeConfig, node_config
from headwater.config.listeners import PLAINTEXT, Listener
from headwater.config.support import (
    check_mechanisms,
    check_security,
    is_loopback,
    open_listeners,
)
from headwater.errors import ApiError, ErrorCode
from headwater.io import Address, Host, Receiver, SocketOptions, Stream
from headwater.metadata import CLUSTER_DEFAULT, Delta, Image, Resource, ResourceType
from headwater.net import NetLimits, Server
from headwater.net.limits import RECEIVING_BYTES_MAX, UNLIMITED, ListenerLimits
from headwater.observability import Log as Lines
from headwater.storage import LogDirs, Reserve
from headwater.storage.log_dirs import DirectoryRefused, LogDirectory, lock_directories

if TYPE_CHECKING:
    from headwater.broker.metrics import NodeMetrics
    from headwater.broker.node_security import ListenerGate, NodeSecurity
    from headwater.net.peer import PeerSecurity
    from headwater.storage import LoadJob

_DRAIN_SECONDS = 5.0
_WATCH_SECONDS = 1.0
_FILES_SECONDS = 2.0
_SAY_SECONDS = 10.0  # how often a start that takes long says how far it is
# Attempts to connect during a short stall must not be dropped and retried a second later.
_BACKLOG = 512
# Of eight workers, some are left to write the metadata log.
_JOBS_BESIDE_QUORUM_MAX = 6


class Node:
    """`start` returns when the node can serve, `stop` when everything is on disk."""

    def __init__(self, config: NodeConfig, host: Host, log: Lines) -> None:
        self.config = config
        self.addresses: dict[str, Address] = {}  # of the broker's listeners
        self.controller_addresses: dict[str, Address] = {}
        self.cluster_id = ""
        self._host = host
        self._lines = log
        log.write_as(str(config.value("headwater.log.format")), node=config.node_id)
        self._watch = RequestWatch(host.clock, log)
        self._watch.configure(config)
        self._throttling = Throttling(config, host.clock)
        self.metrics = self._new_metrics()
        self.metrics_address: Address | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._reserve = Reserve(host.disk, config.metadata_log_dir)
        for name in node_log.LOGGERS:
            log.named(name)  # shown to admins before the first line is written
        self._server = self._new_server()
        self._listeners = BrokerListeners(host.network, self._server, self._gate, log)
        self._unguarded: list[Listener] = []  # as the log has said
        # One of its own: it opens before the node has found its quorum, and closes last.
        self._controller_server = self._new_server(serves_nodes=True)
        self._is_stopping = False
        self._log_channel: BrokerChannel | None = None
        self.failed: asyncio.Future[str] | None = None  # done when the node cannot continue

    def _new_server(self, *, serves_nodes: bool = False) -> Server:
        return Server(
            self._host,
            _limits(self.config),
            self._lines.named(node_log.CONNECTIONS).bounded.warn,
            _socket_options(self.config),
            debug=self._lines.named(node_log.CONNECTIONS).debug,
            serves_nodes=serves_nodes,
        )

    def _new_metrics(self) -> NodeMetrics | None:
        if self.config.metrics_listener is None and self.config.otlp is None:
            return None
        from headwater.broker.metrics import NodeMetrics  # a node that tells nobody is without

        metrics = NodeMetrics(self._host, node_id=self.config.node_id)
        self._watch.count_in(metrics.requests)
        return metrics

    async def start(self) -> None:
        config, host = self.config, self._host
        self.failed = asyncio.get_running_loop().create_future()
        async with contextlib.AsyncExitStack() as undo:  # a failed start leaves nothing behind
            undo.callback(host.workers.close)
            check_start(host, config)
            self._authorizer = build_authorizer(config, self._lines.failure)
            self._principal_builders = PrincipalBuilders(config, self._lines.failure)
            self._security = self._new_security(config)
            self._policies = build_policies(config, self._lines.failure)
            self._check_ports()
            self._lines.info(node_log.start_line(config))
            for warning in config.warnings:
                self._lines.warn(warning)
            self._warn_of_unguarded(config)
            undo.push_async_callback(self._stop_metrics)
            self._serve_metrics()
            self._open_directories()
            undo.callback(self._close_directories)
            undo.callback(host.workers.close)  # first: a worker may hold files open
            votes_first = self._votes_first()
            if not votes_first:
                await self._load_logs()
            self._open_metadata()
            undo.push_async_callback(self._metadata.close)
            undo.push_async_callback(self._controller_server.stop, 0.0)
            self._build_controller()
            undo.callback(self._channel.close)
            if self.metrics is not None:
                self.metrics.add_node(
                    self.cluster_id, self._throttling.quotas, self._server, self._controller_server
                )
                controller = self._controller if config.is_controller else None
                self.metrics.add_cluster(self._metadata, controller, self._quorum.traffic)
            self._metadata.subscribe(self._follow_rules, is_early=True)
            self._metadata.subscribe(self._follow)
            if config.is_broker:
                self._build_broker()
            undo.push_async_callback(self._end_tasks)
            undo.push_async_callback(self._quorum.stop)
            if self._security is not None:
                self._run_security(self._security)
                await self._security.loaded()
            if votes_first:
                self._metadata.hold_back()
            await self._quorum.start()
            joining = self._vote_and_load() if votes_first else self._join_quorum()
            await self._unless_failed(joining)
            if config.is_broker:
                undo.push_async_callback(self._server.stop, 0.0)
                await self._unless_failed(self._start_broker())
            undo.pop_all()
        if self.metrics is not None:
            self.metrics.why_not_ready = self._why_not_ready
            self._run("the measures of the loop", self.metrics.run())
            if config.otlp is not None:
                export = self.metrics.export(config.otlp, self.cluster_id, self._lines)
                self._run("the export of metrics", export)
        self._run("the metadata log", self._watch_metadata())
        self._run("the log directories", self._watch_directories())

    async def _start_broker(self) -> None:
        self._set_strays_aside()
        self._broker.log_moves.resume(self._partitions)
        self._bind()
        await self._lifecycle.register(self.addresses)
        self._fetchers.start()
        # Not earlier: a client would find a cluster without brokers, and the controller could not
        # see that the last run of this node has ended.
        self._server.open()
        for name, work in (
            ("housekeeping", self._housekeeping.run()),
            ("heartbeats", self._lifecycle.run()),
            ("in-sync replicas", self._isr_changes.run()),
            ("directories of replicas", self._assignments.run()),
            *([("compaction", self._cleaning.run())] if self.config.log_cleaner_enable else []),
        ):
            self._run(name, work)

    # Starting, in order

    def _check_ports(self) -> None:
        """Binds each listener and releases it, so that a port in use is found before a directory is
        formatted. The sockets are not kept: a client that connected during a long recovery would
        wait instead of trying another broker."""
        for at in self.config.listeners:
            if at.port:
                self._host.network.bind(at.host, at.port, _refuse_connection).close()

    def _new_security(self, config: NodeConfig) -> NodeSecurity | None:
        builders = self._principal_builders
        if not builders and set(config.listener_security_protocols) <= {PLAINTEXT}:
            return None  # loads no TLS
        from headwater.broker.node_security import NodeSecurity

        lines = self._lines.named(node_log.AUTHENTICATION)
        return NodeSecurity(self._host, config, lines, lambda: self._metadata.image, builders)

    def _run_security(self, security: NodeSecurity) -> None:
        self._run("the keys of bearer tokens", security.run())
        self._run("the files with certificates", self._follow_files(security))

    def _gate(self, listener: str) -> ListenerGate | None:
        return None if self._security is None else self._security.gate(listener)

    def _for_brokers(self) -> PeerSecurity | None:
        return None if self._security is None else self._security.for_brokers()

    def _for_controllers(self) -> PeerSecurity | None:
        return None if self._security is None else self._security.for_controllers()

    def _open_directories(self) -> None:
        """Locks all directories first: of two nodes that start on the same empty directory, one
        formats it and the other reports that it is in use."""
        config, host = self.config, self._host
        taken = lock_directories(host.disk, directories_of(config), f"node {config.node_id}")
        try:
            self._open_taken({directory.path: directory for directory in taken})
        except BaseException:
            for directory in taken:
                directory.release()
            raise

    def _open_taken(self, taken: dict[str, LogDirectory]) -> None:
        config, host = self.config, self._host
        own = self._metadata_directory = taken[config.metadata_log_dir]
        if not own.health.is_online:
            raise DirectoryRefused(
                f"the metadata log cannot be in {own.path}: {own.health.failure}; "
                "fix that, or set metadata.log.dir"
            )
        self._reserve.release_if_tight()
        offline = {path for path, directory in taken.items() if not directory.health.is_online}
        formatted = format_directories(host, config, offline=offline)
        if not host.is_volatile:
            for path in formatted.directories:
                self._lines.info(f"formatted {path} for cluster {formatted.cluster_id}")
        self.cluster_id = formatted.cluster_id
        own.identify(config.node_id, formatted.cluster_id, host.random_id)
        self._log_dirs = LogDirs.of(
            host.disk,
            [taken[path] for path in dict.fromkeys(config.log_dirs)],
            node_id=config.node_id,
            clock=host.clock,
            new_id=host.random_id,
            cluster_id=formatted.cluster_id,
            producer_expiration_ms=config.producer_id_expiration_ms,
        )

    def _votes_first(self) -> bool:
        """Returns whether this node joins the quorum before it has loaded its logs. To check those
        of a broker that crashed may take minutes, in which the other voters could afford one
        failure less. After a clean stop it takes less time than to find the leader."""
        config = self.config
        if not config.is_controller or not config.is_broker or config.alone:
            return False
        return not all(directory.was_clean for directory in self._log_dirs.directories)

    async def _vote_and_load(self) -> None:
        """Is a member of the quorum while the logs are loaded; then the broker hears of the
        metadata."""
        joining = asyncio.ensure_future(self._join_quorum())
        try:
            await self._load_logs(jobs_max=_JOBS_BESIDE_QUORUM_MAX)
            self._metadata.go_on()
            await joining
        finally:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)

    async def _load_logs(self, *, jobs_max: int = sys.maxsize) -> None:
        """Opens all logs, several at a time: after a crash they may have to be scanned."""
        for directory in self._log_dirs.directories:
            for note in directory.notes:
                self._lines.warn(f"{directory.path}: {note}")
        defaults = self.config.topic_defaults.config()
        jobs = self._log_dirs.load_jobs(lambda topic: defaults)
        if not jobs:
            return
        if all(directory.was_clean for directory in self._log_dirs.directories):
            # Only a few bytes of each are read: faster here than in threads.
            for job in jobs:
                self._load(job, job.run)
        else:
            unclean = [each.path for each in self._log_dirs.directories if not each.was_clean]
            self._lines.info(
                f"the last stop was not clean: checking the logs in {', '.join(unclean)}"
            )
            width = min(2 * self.config.num_recovery_threads_per_data_dir, jobs_max)
            for first in range(0, len(jobs), width):
                group = jobs[first : first + width]
                now = ", ".join(str(job.tp) for job in group)
                progress = f"{first} of {len(jobs)} logs are checked; now {now}"
                await self._saying(
                    progress,
                    asyncio.gather(
                        *(self._host.workers.run(job.run) for job in group), return_exceptions=True
                    ),
                )
                for job in group:
                    self._load(job, None)
        for tp in self._log_dirs.adopt_moved():
            self._lines.info(f"{tp}: finished an interrupted move to another directory")
        for report in self._log_dirs.reports:
            self._lines.warn(
                f"{report.tp}: truncated {report.truncated_bytes} bytes at offset "
                f"{report.at_offset}: {report.reason}"
            )

    async def _saying(self, progress: str, work: asyncio.Future[Any]) -> None:
        """Waits for work; says every ten seconds how far it is."""
        try:
            while not (await asyncio.wait([work], timeout=_SAY_SECONDS))[0]:
                self._lines.info(progress)
        finally:
            work.cancel()

    def _load(self, job: LoadJob, run: object) -> None:
        if callable(run):
            with contextlib.suppress(ApiError):
                run()
        if job.log is not None:
            self._log_dirs.loaded(job)

    def _open_metadata(self) -> None:
        directory = self._metadata_directory
        self._metadata = MetadataLog(
            self._host,
            self.config,
            directory_id=directory.id,
            make_room=self._make_room,
            on_failure=self._lines.failure,
        )
        self._metadata.open(directory.health)
        self._reserve.watch(directory.health)
        self._controller = ControllerDriver(
            self._host,
            self.config,
            self._metadata,
            self._lines.named(node_log.CONTROLLER),
            cluster_id=self.cluster_id,
            policies=self._policies,
        )
        self._quorum = QuorumDriver(
            self._host,
            self.config,
            self._metadata,
            self._lines.named(node_log.CONTROLLER),
            cluster_id=self.cluster_id,
            directory_id=directory.id,
            security=self._for_controllers,
        )

    def _make_room(self) -> bool:
        return self.config.is_broker and self._housekeeping.on_full()

    def _build_controller(self) -> None:
        """Builds the controller, if this node is one, and opens its listeners: other nodes vote and
        fetch before this one knows who leads. Every node has the channel to the active one."""
        if not self.config.is_controller:
            self._channel = self._new_channel(None)
            return
        role = self._controller_role = ControllerRole(
            config=self.config,
            cluster_id=self.cluster_id,
            clock=self._host.clock,
            workers=self._host.workers,
            log=self._lines,
            routes=controller_routes(),
            metadata=self._metadata,
            controller=self._controller,
            quorum=self._quorum,
            voter_changes=VoterChanges(
                self._host,
                self.config,
                self._metadata,
                self._lines.named(node_log.CONTROLLER),
                self._for_controllers,
            ),
            authorizer=self._authorizer,
            throttling=self._throttling,
        )
        self._controller_dispatcher = Dispatcher(role, role.routes, self._watch, self._throttling)
        for at in self.config.controller_listeners:
            listener = self._controller_server.bind(
                at.name,
                at.host,
                at.port,
                self._controller_dispatcher,
                self._gate(at.name),
            )
            self.controller_addresses[at.name] = listener.address
        self._controller_server.open(self._early_listeners())
        if self.controller_addresses:
            self._controller.endpoints = [
                self.config.reachable(
                    at,
                    port=self.controller_addresses[at.name].port,
                    host_name=self._host.network.host_name,
                )
                for at in self.config.controller_listeners
            ]
        self._channel = self._new_channel(role)
        self._membership = ControllerMembership(
            self.config.node_id,
            self._channel,
            self._metadata,
            self._controller,
            self._lines.named(node_log.CONTROLLER),
        )

    def _early_listeners(self) -> frozenset[str]:
        """Returns the listeners that open before the node knows its metadata. With an authorizer
        they let in super users only, until it knows the rules (KIP-801)."""
        names = self.config.controller_listener_names
        if self._authorizer is not None:
            early = self.config.value("early.start.listeners")
            if isinstance(early, tuple):
                names = tuple(name.upper() for name in early)
        return frozenset(names)

    def _new_channel(self, role: ControllerRole | None) -> ControllerChannel:
        return ControllerChannel(
            self._host, self.config, self._metadata, role, self._for_controllers
        )

    def _build_broker(self) -> None:
        config, host = self.config, self._host
        storage = self._lines.named(node_log.STORAGE)
        self._partitions = Partitions(config, self._log_dirs, host.clock, host.workers, storage)
        self._groups = GroupCoordinator(
            config, host, self._partitions, self._lines.named(node_log.GROUPS)
        )
        self._log_dirs.cordon(config.cordoned_log_dirs)
        self._lifecycle = Lifecycle(
            config,
            self._channel,
            self._metadata,
            self._log_dirs,
            host,
            self._lines,
            cluster_id=self.cluster_id,
        )
        self._partitions.wait_for_registration(self._lifecycle.incarnation_id)
        producer_ids = ProducerIds(self._channel, self._lifecycle, config.node_id)
        marker_writer = MarkerWriter(
            self._partitions, self._groups, host.clock, timeout_ms=config.request_timeout_ms
        )
        self._transactions = TransactionCoordinator(
            config,
            host,
            self._partitions,
            producer_ids,
            marker_writer.write,
            self._lines.named(node_log.TRANSACTIONS),
        )
        self._broker_channel = BrokerChannel(
            host, config, name="txn-verification", security=self._for_brokers
        )
        self._broker = Broker(
            config=config,
            cluster_id=self.cluster_id,
            clock=host.clock,
            workers=host.workers,
            log=self._lines,
            routes=broker_routes(config),
            metadata=self._metadata,
            channel=self._channel,
            log_dirs=self._log_dirs,
            partitions=self._partitions,
            log_moves=LogMoves(self._log_dirs, host.clock, host.workers, storage),
            fetch_sessions=FetchSessions(
                config.max_incremental_fetch_session_cache_slots, host.random
            ),
            producer_ids=producer_ids,
            auto_topics=AutoTopics(self._channel, lambda: self.config, self._lines),
            groups=self._groups,
            marker_writer=marker_writer,
            transactions=self._transactions,
            verification=TransactionVerification(
                lambda: self.config,
                lambda: self._metadata.image,
                self._partitions,
                self._transactions,
                self._broker_channel,
                host.clock,
            ),
            telemetry=ClientTelemetry(config, host),
            traces=self._watch.traces,
            authorizer=self._authorizer,
        )
        self._housekeeping = Housekeeping(
            config,
            self._partitions,
            self._log_dirs,
            host.clock,
            host.workers,
            storage,
            self._reserve,
        )
        self._cleaning = Cleaning(
            lambda: self.config,
            self._partitions,
            self._log_dirs,
            host.disk,
            host.clock,
            host.workers,
            self._housekeeping.delete_later,
            storage,
        )
        self._assignments = DirectoryAssignments(
            config,
            self._log_dirs,
            self._channel,
            storage,
            broker_epoch=lambda: self._lifecycle.broker_epoch,
            is_lost=self._partitions.is_lost,
        )
        self._broker.check_change = self._check_change
        self._broker.log_moves.on_moved = self._assignments.compare
        self._build_replication()
        if self.metrics is not None:
            self._log_channel = BrokerChannel(
                host, config, name="group-lag", security=self._for_brokers
            )
            self._metadata.subscribe(self._log_channel.follow)
            self.metrics.add_broker(
                self._broker,
                self._cleaning,
                self._log_channel,
                self._run,
                state=self._lifecycle.state,
                fetch_rate=lambda: self._fetchers.fetch_rate(),
            )
        self._metadata.subscribe(self._broker.telemetry.follow)
        self._metadata.subscribe(self._groups.follow)
        self._metadata.subscribe(self._broker_channel.follow)
        self._metadata.subscribe(self._transactions.follow)
        self._metadata.subscribe(self._assignments.follow)

    def _build_replication(self) -> None:
        lines = self._lines.named(node_log.REPLICATION)
        self._fetchers = ReplicaFetchers(
            self.config,
            self._host,
            self._partitions,
            self._log_dirs,
            lines,
            broker_epoch=lambda: self._lifecycle.broker_epoch,
            retire=self._housekeeping.delete_later,
            security=self._for_brokers,
        )
        self._isr_changes = IsrChanges(
            self.config,
            self._partitions,
            self._channel,
            self._host.clock,
            lines,
            broker_epoch=lambda: self._lifecycle.broker_epoch,
        )
        self._partitions.on_role += [
            self._fetchers.follow,
            self._groups.on_role,
            self._transactions.on_role,
        ]
        self._partitions.on_proposal = self._isr_changes.propose

    async def _unless_failed(self, work: Coroutine[object, object, None]) -> None:
        """Carries out a step of the start. Raises ApiError if the metadata log fails meanwhile: the
        step would wait forever for records that the log cannot deliver any more."""
        failed = self._metadata.failed
        assert failed is not None
        step = asyncio.ensure_future(work)
        try:
            either: list[asyncio.Future[Any]] = [step, failed]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not step.done():
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, failed.result())
            step.result()
        finally:
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)

    async def _join_quorum(self) -> None:
        if self.config.is_controller:
            self._run("the controller", self._controller.run())
        await self._quorum.caught_up()
        if self.config.is_controller:
            self._controller_server.open()  # what had to wait for the rules
        if self._metadata.is_leader:
            await self._controller.activated()
        if self.config.is_controller:
            self._run("the registration of the controller", self._membership.run())

    def _set_strays_aside(self) -> None:
        """Renames logs of partitions that the metadata no longer assigns to this broker."""
        known = {partition.tp for partition in self._partitions.all()}
        for log in self._log_dirs.all():
            if log.tp not in known:
                path = self._log_dirs.set_aside(log.tp)
                self._lines.warn(f"{log.tp} is not in the metadata; its log was renamed to {path}")

    def _bind(self) -> None:
        self._dispatcher = Dispatcher(
            self._broker, self._broker.routes, self._watch, self._throttling
        )
        self._listeners.bind(self.config, self._dispatcher)
        self.addresses = self._listeners.addresses

    # Running

    def _follow_rules(self, image: Image, delta: Delta) -> None:
        """Applies a committed change of what controllers need, too. Before all else: what follows
        may open doors."""
        if self._authorizer is not None:
            self._authorizer.follow(image.acls, delta.acls)
        if delta.client_quotas:
            self._follow_quotas(image)

    def _follow(self, image: Image, delta: Delta) -> None:
        """Applies a committed change of the metadata to the parts of the node."""
        own = Resource(ResourceType.BROKER, str(self.config.node_id))
        if CLUSTER_DEFAULT in delta.configs or own in delta.configs:
            self._reconfigure(image.config(own), image.config(CLUSTER_DEFAULT))
        if self.config.is_broker:
            self._fetchers.on_metadata(image, delta)  # first: it knows where leaders are
            self._partitions.follow(image, delta)

    def _follow_quotas(self, image: Image) -> None:
        """Enforces other quotas from now on. Clients that wait because of the old ones go on, and
        their next requests are judged by the new ones."""
        self._throttling.follow(image)
        admit = self._throttling.admit if self._throttling.quotas.limits_addresses else None
        for server in (self._server, self._controller_server):
            server.admit = admit
            server.unthrottle_all()

    async def _follow_files(self, security: NodeSecurity) -> None:
        while True:
            await asyncio.sleep(_FILES_SECONDS)
            security.follow_files()

    def _reconfigure(self, own: dict[str, str], cluster: dict[str, str]) -> None:
        try:
            config = node_config(
                self.config.properties, dynamic_broker=own, dynamic_default=cluster
            )
        except ConfigError as error:
            # The controller has validated it; a node of another version may still disagree.
            self._lines.error(f"a dynamic setting was ignored: {error}")
            return
        try:
            check_security(config)
        except ConfigError as error:
            # From a directory of Kafka: the controller here refuses such a change.
            self._lines.error(f"a dynamic setting has no effect: {error}")
        try:
            self._resecure(config)
        except ConfigError as error:
            # The broker that was asked has checked it; files may have changed since.
            self._lines.error(f"TLS and users stay as they were: {error}")
        self.config = config
        self._warn_of_unguarded(config)
        self._watch.configure(config)
        self._server.limits = self._controller_server.limits = _limits(config)
        if config.is_controller:
            self._controller_role.config = config
        if config.is_broker:
            self._broker.config = config
            self._partitions.reconfigure(config)
            self._log_dirs.cordon(config.cordoned_log_dirs)
            self._lifecycle.reconfigure(config)
            self._lifecycle.beat_now()  # the controller places replicas by it
            if self._listeners.follow(config):
                self._lifecycle.move(dict(self.addresses))

    def _warn_of_unguarded(self, config: NodeConfig) -> None:
        """Names the listeners beyond loopback that need no authentication, each once."""
        unguarded = open_listeners(config)
        if new := [at for at in unguarded if at not in self._unguarded]:
            self._lines.warn(
                f"{', '.join(map(str, new))}: everybody who reaches this may read, write "
                "and administer, as it has no authentication"
            )
        self._unguarded = unguarded

    def _resecure(self, config: NodeConfig) -> None:
        if self._security is not None:
            self._security.reload(config)
            return
        security = self._security = self._new_security(config)
        if security is not None:
            self._run_security(security)

    def _check_change(self, config: NodeConfig) -> None:
        """Raises ConfigError for settings that this node cannot change to while it runs."""
        self._listeners.check(self.config, config)
        check_mechanisms(config)
        if self._security is None:
            self._new_security(config)  # all of it can be made
        else:
            self._security.check(config)

    def drop_connections(self) -> int:
        """Closes all connections; returns how many clients had. For tests of clients."""
        self._controller_server.drop_connections()
        return self._server.drop_connections()

    async def _watch_metadata(self) -> None:
        assert self._metadata.failed is not None
        self._fail(await self._metadata.failed)

    async def _watch_directories(self) -> None:
        """Takes the replicas of a directory that has failed offline; a heartbeat tells the
        controller at once. Stops the node, as Kafka does, when the directory of the metadata log or
        all others have failed: an operator has to fix the disk."""
        own, others = self._metadata_directory, self._log_dirs.directories
        failed_before = self._log_dirs.offline()
        while own.health.is_online and any(directory.health.is_online for directory in others):
            for directory in self._log_dirs.offline():
                if directory not in failed_before:
                    failed_before.append(directory)
                    self._lines.error(
                        f"log directory {directory.path} has failed: {directory.health.failure}; "
                        "its replicas are offline until it is repaired and the node is restarted"
                    )
                    if self.config.is_broker:
                        self._lifecycle.beat_now()
            if self.config.is_broker:
                for tp in self._partitions.drop_failed():
                    self._assignments.compare(tp)
            await asyncio.sleep(_WATCH_SECONDS)
        failed = others[0] if own.health.is_online else own
        self._fail(f"log directory {failed.path} has failed: {failed.health.failure}")

    def _run(self, name: str, work: Coroutine[object, object, None]) -> None:
        self._tasks.append(asyncio.ensure_future(self._guard(name, work)))

    async def _guard(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Runs a task; an unexpected error is logged once and ends the node."""
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._lines.failure(f"{name} failed", error)
            self._fail(f"{name} failed: {error}")

    def _fail(self, why: str) -> None:
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(why)

    # Metrics

    def _serve_metrics(self) -> None:
        metrics, at = self.metrics, self.config.metrics_listener
        if metrics is None or at is None:
            return
        metrics.has_failed = lambda: self.failed is not None and self.failed.done()
        self.metrics_address = metrics.serve(*at)
        self._lines.info(f"metrics on http://{self.metrics_address}/metrics")
        if not is_loopback(at[0]):
            self._lines.warn(
                f"{self.metrics_address}: everybody who reaches this may read the metrics, as it "
                "has no authentication"
            )

    def _why_not_ready(self) -> str | None:
        """Returns why this node cannot serve as it should; None if it can."""
        if self.failed is not None and self.failed.done():
            return f"failed: {self.failed.result()}"
        if self._is_stopping:
            return "stopping"
        if not self._metadata.is_caught_up:
            return "the metadata is not caught up"
        if self.config.is_broker:
            own = self._metadata.image.brokers.get(self.config.node_id)
            if own is None or own.epoch != self._lifecycle.broker_epoch:
                return "the broker is not registered"
            if own.fenced:
                return "the broker is fenced"
            if own.in_controlled_shutdown:
                return "the broker is shutting down"
        return None

    async def _stop_metrics(self) -> None:
        if self.metrics is not None:
            await asyncio.gather(*self.metrics.stop(), return_exceptions=True)

    # Stopping

    async def leave(self) -> None:
        """Moves the leaderships to other brokers and is fenced, but goes on as a voter until
        `stop`. When a whole cluster stops, brokers leave while there still is a quorum."""
        if self.config.is_broker:
            with contextlib.suppress(ApiError):
                await self._lifecycle.shut_down()

    async def stop(self) -> None:
        """Leaves the cluster, sends pending responses, and makes everything durable."""
        failed = self.failed is not None and self.failed.done()
        self._is_stopping = True
        is_broker = self.config.is_broker
        if not failed:
            await self.leave()
        await self._end_tasks()
        partitions = list(self._partitions.all()) if is_broker else []
        marks = {partition.tp: partition.high_watermark for partition in partitions}
        for partition in partitions:
            partition.close()
        if is_broker:
            await self._server.stop(_DRAIN_SECONDS)
            await self._dispatcher.stop()
        self._channel.close()
        await self._quorum.stop()
        if self.config.is_controller:
            await self._controller_server.stop(_DRAIN_SECONDS)
            await self._controller_dispatcher.stop()
        await asyncio.gather(*(partition.flush_ended() for partition in partitions))
        await self._metadata.close()
        epoch = self._lifecycle.broker_epoch if is_broker else -1
        if not failed:  # concurrently: a thousand logs share the wait for the device
            jobs = self._log_dirs.closing_jobs()
            waits = (self._host.workers.run(job) for job in jobs)
            await asyncio.gather(*waits, return_exceptions=True)
        await self._host.workers.run(
            lambda: self._log_dirs.close(not failed, marks, broker_epoch=epoch)
        )
        self._metadata_directory.release()
        await self._stop_metrics()
        self._host.workers.close()
        self._lines.info("stopped after a failure" if failed else "stopped")

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self.config.is_broker:
            return
        self._partitions.stop()
        ending = [
            *self._fetchers.stop(),
            *self._isr_changes.stop(),
            *self._housekeeping.stop(),
            *self._broker.auto_topics.stop(),
            *self._groups.stop(),
            *self._transactions.stop(),
            *self._broker_channel.stop(),
            *(self._log_channel.stop() if self._log_channel is not None else ()),
            *self._broker.log_moves.stop(),
        ]
        await asyncio.gather(*ending, return_exceptions=True)

    def _close_directories(self) -> None:
        """Closes the directories without checkpoints: the next start recovers."""
        self._log_dirs.close(clean=False)
        self._metadata_directory.release()


def _refuse_connection(stream: Stream) -> Receiver:
    raise AssertionError(f"{stream.peer} was accepted by a listener that was never opened")


def _listener_limits(config: NodeConfig, name: str) -> ListenerLimits:
    # As in Kafka, what is set for all listeners together is not the limit of each.
    def limit(key: str) -> int:
        value = config.listener_only(name, key)
        return value if isinstance(value, int) else UNLIMITED

    return ListenerLimits(
        limit("max.connections"),
        limit("max.connections.per.ip"),
        limit("max.connection.creation.rate"),
    )


def _limits(config: NodeConfig) -> NetLimits:
    queued = config.queued_max_request_bytes
    reserved = config.inter_broker_listener_name if len(config.listeners) > 1 else ""
    return NetLimits(
        frame_bytes_max=config.socket_request_max_bytes,
        connections_max=config.max_connections,
        connections_per_second_max=config.max_connection_creation_rate,
        of_listeners={at.name: _listener_limits(config, at.name) for at in config.listeners},
        reserved_listener=reserved,
        connections_per_ip_max=config.max_connections_per_ip,
        connections_of_ip_max=config.max_connections_per_ip_overrides,
        idle_seconds=config.connections_max_idle_ms / 1000,
        receiving_bytes_max=queued if queued > 0 else RECEIVING_BYTES_MAX,
    )


def _socket_options(config: NodeConfig) -> SocketOptions:
    """Returns the socket options that the user set. Kafka's default buffer sizes are not applied:
    they predate automatic buffer sizing and slow down distant clients."""

    def given(key: str, value: int) -> int | None:
        return value if key in config.properties and value >= 0 else None

    return SocketOptions(
        given("socket.listen.backlog.size", config.socket_listen_backlog_size) or _BACKLOG,
        given("socket.send.buffer.bytes", config.socket_send_buffer_bytes),
        given("socket.receive.buffer.bytes", config.socket_receive_buffer_bytes),
    )
