"""Who the node is, the metadata quorum and replication between brokers."""

TABLE = """
alter.config.policy.class.name CLASS null L fixed -
    Plugin that may refuse changes of settings.
auto.leader.rebalance.enable BOOLEAN true H fixed +
    Whether leadership goes back to the preferred replicas by itself.
broker.heartbeat.interval.ms INT 2000 M fixed +
    How often a broker tells the controller that it is alive, in ms.
broker.id INT -1 H fixed +
    The node's number under its old name; the same as node.id.
broker.rack STRING null M fixed +
    Where the broker stands; replicas of a partition are spread over racks.
broker.session.timeout.ms INT 9000 M fixed +
    A broker that is silent this long is fenced, in ms.
config.providers LIST "" L cluster - list
    Names of plugins that fetch values of settings from elsewhere.
controlled.shutdown.enable BOOLEAN true M fixed -
    Whether a broker hands over its leaderships before it stops.
controller.listener.names LIST required H fixed + list!
    Names of the listeners on which controllers are reached.
controller.performance.always.log.threshold.ms LONG 2000 M fixed -i >=0
    A controller event that takes longer than this is always logged.
controller.performance.sample.period.ms LONG 60000 M fixed -i >=100
    How often the controller logs how long its events take, in ms.
controller.quorum.append.linger.ms INT 25 M fixed - >=0
    How long the metadata leader gathers records before it writes them, in ms.
controller.quorum.auto.join.enable BOOLEAN false L fixed -
    Whether a controller joins the voters by itself.
controller.quorum.bootstrap.servers LIST "" H fixed + servers
    Where to find the quorum: host:port of some of its members.
controller.quorum.election.backoff.max.ms INT 1000 H fixed + >=0
    Longest pause before a candidate tries again, in ms.
controller.quorum.election.timeout.ms INT 1000 H fixed + >=0
    How long to wait for a leader before an election is called, in ms.
controller.quorum.fetch.max.bytes INT 1048576 L fixed - >=1
    Most bytes of the metadata log that one fetch brings.
controller.quorum.fetch.snapshot.max.bytes INT 1048576 L fixed - >=1
    Most bytes of a metadata snapshot that one fetch brings.
controller.quorum.fetch.timeout.ms INT 2000 H fixed + >=0
    A voter that cannot fetch for this long becomes a candidate, in ms.
controller.quorum.request.timeout.ms INT 2000 M fixed - >=0
    How long a request between quorum members may take, in ms.
controller.quorum.retry.backoff.ms INT 20 L fixed - >=0
    Pause before a request in the quorum is sent again, in ms.
controller.quorum.voters LIST "" H fixed + voters
    The voters of a fixed quorum: id@host:port for each.
initial.broker.registration.timeout.ms INT 60000 M fixed -
    A broker that cannot register in this time stops, in ms.
internal.metadata.delete.delay.millis LONG 60000 L fixed -i
    How long deleted files of the metadata log stay on disk, in ms.
internal.metadata.log.segment.bytes INT null L fixed -i
    Size of a metadata segment without a lower bound, for tests.
internal.metadata.max.batch.size.in.bytes INT 8388608 L fixed -i
    Largest batch in the metadata log.
leader.imbalance.check.interval.seconds LONG 300 H fixed + >=1
    How often the controller looks for leaders to move back, in seconds.
metadata.log.dir STRING null H fixed +
    Where the metadata log is kept; unset, in the first of log.dirs.
metadata.log.max.record.bytes.between.snapshots LONG 20971520 H fixed + >=1
    After this many bytes of metadata a snapshot is made.
metadata.log.max.snapshot.interval.ms LONG 3600000 H fixed + >=0
    After this time a metadata snapshot is made if there is news, in ms.
metadata.log.segment.bytes INT 1073741824 H fixed + >=8388608
    A segment of the metadata log ends when it has this many bytes.
metadata.log.segment.ms LONG 604800000 H fixed +
    A segment of the metadata log ends after this time, in ms.
metadata.max.idle.interval.ms INT 500 L fixed + >=0
    How often the metadata leader writes when nothing happens, in ms; 0 never.
metadata.max.retention.bytes LONG 104857600 H fixed +
    Old metadata beyond this many bytes is deleted once a snapshot has it.
metadata.max.retention.ms LONG 604800000 H fixed +
    Metadata older than this is deleted once a snapshot has it, in ms.
node.id INT required H fixed + >=0
    The node's number, different on each node of a cluster.
num.replica.alter.log.dirs.threads INT null H fixed -
    Threads that move replicas between directories.
num.replica.fetchers INT 1 H cluster - >=1
    Fetchers to each other broker from which replicas are copied.
process.roles LIST required H fixed + list!(broker|controller)
    What the node is: broker, controller, or both.
replica.fetch.backoff.ms INT 1000 M fixed - >=0
    Pause after a failed fetch from a leader, in ms.
replica.fetch.max.bytes INT 1048576 M fixed - >=0
    Bytes of a partition that a follower asks for at a time; a larger batch still comes.
replica.fetch.min.bytes INT 1 H fixed -
    Least bytes for which a leader answers a follower at once.
replica.fetch.response.max.bytes INT 10485760 M fixed - >=0
    Bytes of all partitions that a follower asks for at a time.
replica.fetch.wait.max.ms INT 500 H fixed -
    How long a leader may keep a follower waiting for data, in ms.
replica.high.watermark.checkpoint.interval.ms LONG 5000 H fixed +
    How often high watermarks are noted on disk, in ms.
replica.lag.time.max.ms LONG 30000 H fixed -
    A follower that has not caught up for this long is out of sync, in ms.
replica.selector.class STRING null M fixed -
    Plugin that picks the replica from which a consumer should read.
replica.socket.receive.buffer.bytes INT 65536 H fixed -
    Size of the socket buffer for fetches from a leader.
replica.socket.timeout.ms INT 30000 H fixed -
    How long a fetch from a leader may take, in ms.
replication.quota.window.num INT 11 L fixed - >=1
    How many windows count in the quota for replication.
replication.quota.window.size.seconds INT 1 L fixed - >=1
    Length of a window of the quota for replication.
server.max.startup.time.ms LONG 9223372036854775807 M fixed -i >=0
    A node that has not started in this time stops, in ms.
unstable.api.versions.enable BOOLEAN false H fixed -i
    Whether versions of APIs still in work are offered.
unstable.feature.versions.enable BOOLEAN false H fixed -i
    Whether versions of features still in work are offered.
"""
