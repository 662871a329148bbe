"""Listeners, connections, requests, quotas and metrics."""

TABLE = """
advertised.listeners LIST null H fixed + list!?
    Addresses that clients are told to use; unset, each gets the address it came to.
alter.log.dirs.replication.quota.window.num INT 11 L fixed - >=1
    How many windows count in the quota for moves between directories.
alter.log.dirs.replication.quota.window.size.seconds INT 1 L fixed - >=1
    Length of a window of the quota for moves between directories.
client.quota.callback.class CLASS null L fixed -
    Plugin that sets the quotas of clients.
connection.failed.authentication.delay.ms INT 100 L fixed - >=0
    How long a refused login waits for its answer, which slows guessing.
connections.max.idle.ms LONG 600000 M fixed +
    A connection without traffic for this long is closed, in ms.
controller.quota.window.num INT 11 L fixed - >=1
    How many windows count in the quota for controller changes.
controller.quota.window.size.seconds INT 1 L fixed - >=1
    Length of a window of the quota for controller changes.
controller.socket.timeout.ms INT 30000 M fixed -
    How long a request to the controller may take, in ms.
delete.records.purgatory.purge.interval.requests INT 1 M fixed -
    After how many finished waits of DeleteRecords memory is tidied.
early.start.listeners LIST null H fixed - list?
    Listeners that open before the broker has caught up with the metadata.
fetch.max.bytes INT 57671680 M fixed + >=1024
    Most bytes that one fetch is answered with.
fetch.purgatory.purge.interval.requests INT 1000 M fixed -
    After how many finished waits of fetches memory is tidied.
inter.broker.listener.name STRING null M fixed +
    Listener over which brokers talk to each other.
kafka.metrics.polling.interval.secs INT 10 L fixed - >=1
    How often metrics reporters are asked, in seconds.
kafka.metrics.reporters LIST "" L fixed - list
    Plugins that report the broker's older kind of metrics.
listener.security.protocol.map STRING SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT L broker +
    Which protocol each listener speaks, as NAME:PROTOCOL.
listeners LIST PLAINTEXT://:9092 H broker + list!
    Where the node listens, as NAME://host:port; an empty host is every interface.
max.connection.creation.rate INT 2147483647 M cluster - >=0
    Most new connections a second.
max.connections INT 2147483647 M cluster + >=0
    Most connections at a time.
max.connections.per.ip INT 2147483647 M cluster + >=0
    Most connections from one address at a time.
max.connections.per.ip.overrides STRING "" M cluster +
    Other limits for some addresses, as address:count.
max.incremental.fetch.session.cache.slots INT 1000 M fixed + >=0
    How many fetch sessions are remembered.
metric.reporters LIST org.apache.kafka.common.metrics.JmxReporter L cluster - list
    Plugins that report metrics.
metrics.num.samples INT 2 L fixed - >=1
    How many samples a metric keeps.
metrics.recording.level STRING INFO L fixed -
    How much is measured: INFO, DEBUG or TRACE.
metrics.sample.window.ms LONG 30000 L fixed - >=1
    How long a sample of a metric lasts, in ms.
num.io.threads INT 8 H cluster - >=1
    Threads that work on requests.
num.network.threads INT 3 H cluster - >=1
    Threads for each listener's connections.
producer.purgatory.purge.interval.requests INT 1000 M fixed -
    After how many finished waits of produces memory is tidied.
queued.max.request.bytes LONG -1 M fixed +
    Most bytes of requests that wait to be served; -1 means no bound.
queued.max.requests INT 500 H fixed - >=1
    Most requests that wait to be served before reading pauses.
quota.window.num INT 11 L fixed - >=1
    How many windows count in the quotas of clients.
quota.window.size.seconds INT 1 L fixed - >=1
    Length of a window of the quotas of clients.
request.timeout.ms INT 30000 H fixed +
    How long the broker's own requests may take, in ms.
socket.connection.setup.timeout.max.ms LONG 30000 M fixed -
    Longest time for a connection to be made after failures, in ms.
socket.connection.setup.timeout.ms LONG 10000 M fixed -
    Time for a connection to be made, in ms.
socket.listen.backlog.size INT 50 M fixed + >=1
    Connections that may wait to be accepted; 512 unless it is set.
socket.receive.buffer.bytes INT 102400 H fixed +
    Size of sockets' receive buffers; unless it is set, and with -1, the system sizes them.
socket.request.max.bytes INT 104857600 H fixed + >=1
    Largest request that is taken, in bytes.
socket.send.buffer.bytes INT 102400 H fixed +
    Size of sockets' send buffers; unless it is set, and with -1, the system sizes them.
telemetry.max.bytes INT 1048576 L fixed - >=1
    Largest push of a client's metrics that is taken, in bytes.
"""  # noqa: E501
