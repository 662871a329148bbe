"""Settings of the node's identity, the metadata quorum and replication between brokers."""

TABLE = """
alter.config.policy.class.name CLASS null L fixed +
    Plugin class that may reject changes of settings.
auto.leader.rebalance.enable BOOLEAN true H fixed +
    Whether leadership returns to the preferred replicas automatically.
broker.heartbeat.interval.ms INT 2000 M fixed +
    Heartbeat interval of brokers, in ms.
broker.id INT -1 H fixed +
    Former name of node.id; must have the same value.
broker.rack STRING null M fixed +
    Rack of the broker; replicas of a partition are spread over racks.
broker.session.timeout.ms INT 9000 M fixed +
    A broker that sends no heartbeat for this long is fenced, in ms.
config.providers LIST "" L cluster + list
    Names of plugins that provide values of settings.
controlled.shutdown.enable BOOLEAN true M fixed +
    Whether a broker transfers its partition leaderships before it stops.
controller.listener.names LIST required H fixed + list!
    Names of the listeners of controllers.
controller.performance.always.log.threshold.ms LONG 2000 M fixed -i >=0
    Controller events that take longer than this are always logged, in ms.
controller.performance.sample.period.ms LONG 60000 M fixed -i >=100
    How often the controller logs the duration of its events, in ms.
controller.quorum.append.linger.ms INT 25 M fixed - >=0
    Pause before metadata is written; no meaning here: what comes during a sync shares the next.
controller.quorum.auto.join.enable BOOLEAN false L fixed +
    Whether a controller joins the voters automatically.
controller.quorum.bootstrap.servers LIST "" H fixed + servers
    Addresses of controllers to contact first, as host:port.
controller.quorum.election.backoff.max.ms INT 1000 H fixed + >=0
    Maximum pause before a candidate starts another election, in ms.
controller.quorum.election.timeout.ms INT 1000 H fixed + >=0
    How long to wait for a leader before starting an election, in ms.
controller.quorum.fetch.max.bytes INT 1048576 L fixed + >=1
    Maximum number of bytes of the metadata log in one fetch response.
controller.quorum.fetch.snapshot.max.bytes INT 1048576 L fixed + >=1
    Maximum number of bytes of a metadata snapshot in one fetch response.
controller.quorum.fetch.timeout.ms INT 2000 H fixed + >=0
    A voter that cannot fetch from the leader for this long starts an election, in ms.
controller.quorum.request.timeout.ms INT 2000 M fixed + >=0
    Timeout of requests between members of the quorum, in ms.
controller.quorum.retry.backoff.ms INT 20 L fixed + >=0
    Pause before a failed request in the quorum is retried, in ms.
controller.quorum.voters LIST "" H fixed + voters
    Voters of a static quorum, as id@host:port.
initial.broker.registration.timeout.ms INT 60000 M fixed +
    A broker that cannot register within this time stops, in ms.
internal.metadata.delete.delay.millis LONG 60000 L fixed -i
    How long deleted files of the metadata log stay on disk, in ms.
internal.metadata.log.segment.bytes INT null L fixed -i
    Size of a metadata segment without a lower bound, for tests.
internal.metadata.max.batch.size.in.bytes INT 8388608 L fixed -i
    Maximum size of a batch in the metadata log, in bytes.
leader.imbalance.check.interval.seconds LONG 300 H fixed + >=1
    How often the controller checks for leaders that are not the preferred ones, in seconds.
metadata.log.dir STRING null H fixed +
    Directory of the metadata log; by default the first of log.dirs.
metadata.log.max.record.bytes.between.snapshots LONG 20971520 H fixed + >=1
    A snapshot is written after this many bytes of metadata records.
metadata.log.max.snapshot.interval.ms LONG 3600000 H fixed + >=0
    A snapshot is written after this time if there are new records, in ms.
metadata.log.segment.bytes INT 1073741824 H fixed + >=8388608
    Maximum size of a segment of the metadata log, in bytes.
metadata.log.segment.ms LONG 604800000 H fixed +
    Maximum age of a segment of the metadata log before it is rolled, in ms.
metadata.max.idle.interval.ms INT 500 L fixed + >=0
    How often an idle metadata leader writes a no-op record, in ms; 0 means never.
metadata.max.retention.bytes LONG 104857600 H fixed +
    Maximum size of the metadata log and its snapshots before old ones are deleted, in bytes.
metadata.max.retention.ms LONG 604800000 H fixed +
    Maximum age of metadata log files before they are deleted once a snapshot covers them, in ms.
node.id INT required H fixed + >=0
    Id of the node, unique in its cluster.
num.replica.alter.log.dirs.threads INT null H fixed -
    Number of threads that move replicas; no meaning here: moves share the worker threads.
num.replica.fetchers INT 1 H cluster - >=1
    Number of fetchers for each leader; no meaning here: one request brings all that is new.
process.roles LIST required H fixed + list!(broker|controller)
    Roles of the node: broker, controller, or both.
replica.fetch.backoff.ms INT 1000 M fixed + >=0
    Pause after a failed fetch from a leader, in ms.
replica.fetch.max.bytes INT 1048576 M fixed + >=0
    Bytes of a partition that a follower fetches at a time; a larger batch is still returned.
replica.fetch.min.bytes INT 1 H fixed +
    Minimum number of bytes for which a leader answers a follower at once.
replica.fetch.response.max.bytes INT 10485760 M fixed + >=0
    Maximum number of bytes of all partitions in a response to a follower.
replica.fetch.wait.max.ms INT 500 H fixed +
    Maximum time that a leader keeps a follower waiting for data, in ms.
replica.high.watermark.checkpoint.interval.ms LONG 5000 H fixed +
    How often high watermarks are written to disk, in ms.
replica.lag.time.max.ms LONG 30000 H fixed +
    A follower that has not caught up for this long leaves the in-sync replicas, in ms.
replica.selector.class STRING null M fixed +
    Class that selects the replica from which a consumer reads: the leader, or one in its rack.
replica.socket.receive.buffer.bytes INT 65536 H fixed -
    Size of the socket buffer for fetches from a leader.
replica.socket.timeout.ms INT 30000 H fixed +
    Timeout of fetches from a leader, in ms.
replication.quota.window.num INT 11 L fixed - >=1
    Number of windows kept for quotas for replication.
replication.quota.window.size.seconds INT 1 L fixed - >=1
    Length of a window for quotas for replication, in seconds.
server.max.startup.time.ms LONG 9223372036854775807 M fixed -i >=0
    A node that has not started within this time stops, in ms.
unstable.api.versions.enable BOOLEAN false H fixed +i
    Whether unstable versions of APIs are offered.
unstable.feature.versions.enable BOOLEAN false H fixed -i
    Whether unstable versions of features are offered.
"""
