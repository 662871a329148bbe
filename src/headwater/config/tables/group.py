"""Settings of one group."""

TABLE = """
consumer.assignment.interval.ms INT 1000 M cluster + >=0
    .
consumer.heartbeat.interval.ms INT 5000 M cluster + >=1
    .
consumer.session.timeout.ms INT 45000 M cluster + >=1
    .
share.assignment.interval.ms INT 1000 M cluster + >=0
    .
share.auto.offset.reset STRING latest M cluster + reset
    .
share.delivery.count.limit INT 5 M cluster + >=2
    .
share.heartbeat.interval.ms INT 5000 M cluster + >=1
    .
share.isolation.level STRING read_uncommitted M cluster + in(read_committed|read_uncommitted)
    .
share.partition.max.record.locks INT 2000 M cluster + >=100
    .
share.record.lock.duration.ms INT 30000 M cluster + >=1000
    .
share.renew.acknowledge.enable BOOLEAN true M cluster +
    .
share.session.timeout.ms INT 45000 M cluster + >=1
    .
streams.assignment.interval.ms INT 1000 M cluster + >=0
    .
streams.heartbeat.interval.ms INT 5000 M cluster + >=1
    .
streams.initial.rebalance.delay.ms INT 3000 M cluster + >=0
    .
streams.num.standby.replicas INT 0 M cluster + >=0
    .
streams.session.timeout.ms INT 45000 M cluster + >=1
    .
"""
