"""Who the node is, the metadata quorum and replication between brokers."""

TABLE = """
alter.config.policy.class.name CLASS null L fixed -
    .
auto.leader.rebalance.enable BOOLEAN true H fixed +
    .
broker.heartbeat.interval.ms INT 2000 M fixed +
    .
broker.id INT -1 H fixed +
    .
broker.rack STRING null M fixed +
    .
broker.session.timeout.ms INT 9000 M fixed +
    .
config.providers LIST "" L cluster - list
    .
controlled.shutdown.enable BOOLEAN true M fixed +
    .
controller.listener.names LIST required H fixed + list!
    .
controller.performance.always.log.threshold.ms LONG 2000 M fixed -i >=0
    .
controller.performance.sample.period.ms LONG 60000 M fixed -i >=100
    .
controller.quorum.append.linger.ms INT 25 M fixed + >=0
    .
controller.quorum.auto.join.enable BOOLEAN false L fixed +
    .
controller.quorum.bootstrap.servers LIST "" H fixed + servers
    .
controller.quorum.election.backoff.max.ms INT 1000 H fixed + >=0
    .
controller.quorum.election.timeout.ms INT 1000 H fixed + >=0
    .
controller.quorum.fetch.max.bytes INT 1048576 L fixed + >=1
    .
controller.quorum.fetch.snapshot.max.bytes INT 1048576 L fixed + >=1
    .
controller.quorum.fetch.timeout.ms INT 2000 H fixed + >=0
    .
controller.quorum.request.timeout.ms INT 2000 M fixed + >=0
    .
controller.quorum.retry.backoff.ms INT 20 L fixed + >=0
    .
controller.quorum.voters LIST "" H fixed + voters
    .
initial.broker.registration.timeout.ms INT 60000 M fixed +
    .
internal.metadata.delete.delay.millis LONG 60000 L fixed -i
    .
internal.metadata.log.segment.bytes INT null L fixed -i
    .
internal.metadata.max.batch.size.in.bytes INT 8388608 L fixed -i
    .
leader.imbalance.check.interval.seconds LONG 300 H fixed + >=1
    .
metadata.log.dir STRING null H fixed +
    .
metadata.log.max.record.bytes.between.snapshots LONG 20971520 H fixed + >=1
    .
metadata.log.max.snapshot.interval.ms LONG 3600000 H fixed + >=0
    .
metadata.log.segment.bytes INT 1073741824 H fixed + >=8388608
    .
metadata.log.segment.ms LONG 604800000 H fixed +
    .
metadata.max.idle.interval.ms INT 500 L fixed + >=0
    .
metadata.max.retention.bytes LONG 104857600 H fixed +
    .
metadata.max.retention.ms LONG 604800000 H fixed +
    .
node.id INT required H fixed + >=0
    .
num.replica.alter.log.dirs.threads INT null H fixed -
    .
num.replica.fetchers INT 1 H cluster + >=1
    .
process.roles LIST required H fixed + list!(broker|controller)
    .
replica.fetch.backoff.ms INT 1000 M fixed + >=0
    .
replica.fetch.max.bytes INT 1048576 M fixed + >=0
    .
replica.fetch.min.bytes INT 1 H fixed +
    .
replica.fetch.response.max.bytes INT 10485760 M fixed + >=0
    .
replica.fetch.wait.max.ms INT 500 H fixed +
    .
replica.high.watermark.checkpoint.interval.ms LONG 5000 H fixed +
    .
replica.lag.time.max.ms LONG 30000 H fixed +
    .
replica.selector.class STRING null M fixed +
    .
replica.socket.receive.buffer.bytes INT 65536 H fixed +
    .
replica.socket.timeout.ms INT 30000 H fixed +
    .
replication.quota.window.num INT 11 L fixed - >=1
    .
replication.quota.window.size.seconds INT 1 L fixed - >=1
    .
server.max.startup.time.ms LONG 9223372036854775807 M fixed -i >=0
    .
unstable.api.versions.enable BOOLEAN false H fixed +i
    .
unstable.feature.versions.enable BOOLEAN false H fixed +i
    .
"""
