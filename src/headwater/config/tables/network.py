"""Listeners, connections, requests, quotas and metrics."""

TABLE = """
advertised.listeners LIST null H fixed + list!?
    .
alter.log.dirs.replication.quota.window.num INT 11 L fixed - >=1
    .
alter.log.dirs.replication.quota.window.size.seconds INT 1 L fixed - >=1
    .
client.quota.callback.class CLASS null L fixed -
    .
connection.failed.authentication.delay.ms INT 100 L fixed + >=0
    .
connections.max.idle.ms LONG 600000 M fixed +
    .
controller.quota.window.num INT 11 L fixed - >=1
    .
controller.quota.window.size.seconds INT 1 L fixed - >=1
    .
controller.socket.timeout.ms INT 30000 M fixed -
    .
delete.records.purgatory.purge.interval.requests INT 1 M fixed -
    .
early.start.listeners LIST null H fixed - list?
    .
fetch.max.bytes INT 57671680 M fixed + >=1024
    .
fetch.purgatory.purge.interval.requests INT 1000 M fixed -
    .
inter.broker.listener.name STRING null M fixed +
    .
kafka.metrics.polling.interval.secs INT 10 L fixed - >=1
    .
kafka.metrics.reporters LIST "" L fixed - list
    .
listener.security.protocol.map STRING SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT L broker +
    .
listeners LIST PLAINTEXT://:9092 H broker + list!
    .
max.connection.creation.rate INT 2147483647 M cluster + >=0
    .
max.connections INT 2147483647 M cluster + >=0
    .
max.connections.per.ip INT 2147483647 M cluster + >=0
    .
max.connections.per.ip.overrides STRING "" M cluster +
    .
max.incremental.fetch.session.cache.slots INT 1000 M fixed + >=0
    .
metric.reporters LIST org.apache.kafka.common.metrics.JmxReporter L cluster - list
    .
metrics.num.samples INT 2 L fixed - >=1
    .
metrics.recording.level STRING INFO L fixed -
    .
metrics.sample.window.ms LONG 30000 L fixed - >=1
    .
num.io.threads INT 8 H cluster - >=1
    .
num.network.threads INT 3 H cluster - >=1
    .
producer.purgatory.purge.interval.requests INT 1000 M fixed -
    .
queued.max.request.bytes LONG -1 M fixed +
    .
queued.max.requests INT 500 H fixed + >=1
    .
quota.window.num INT 11 L fixed - >=1
    .
quota.window.size.seconds INT 1 L fixed - >=1
    .
request.timeout.ms INT 30000 H fixed +
    .
socket.connection.setup.timeout.max.ms LONG 30000 M fixed -
    .
socket.connection.setup.timeout.ms LONG 10000 M fixed -
    .
socket.listen.backlog.size INT 50 M fixed + >=1
    .
socket.receive.buffer.bytes INT 102400 H fixed +
    .
socket.request.max.bytes INT 104857600 H fixed + >=1
    .
socket.send.buffer.bytes INT 102400 H fixed +
    .
telemetry.max.bytes INT 1048576 L fixed + >=1
    .
"""  # noqa: E501
