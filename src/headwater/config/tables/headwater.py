"""Settings of Headwater's own, which Kafka does not have."""

TABLE = """
headwater.log.format STRING text L fixed + in(text|json)
    How log lines are written: text or json.
headwater.log.slow.ms LONG 5000 L cluster + >=0
    Requests that take this long longer than they asked to wait are logged; 0 means none, in ms.
headwater.producer.ids.per.second.max INT 100 L cluster + >=0
    Producer ids that a user gets from one address; more must wait for their turn. 0 means no limit.
headwater.metrics.listen STRING "" L fixed +
    HOST:PORT where metrics and health are served by HTTP; empty means nowhere.
headwater.otlp.endpoint STRING "" L fixed +
    URL of an OpenTelemetry collector that gets the metrics, by OTLP over HTTP; empty means none.
headwater.otlp.headers PASSWORD null L fixed +
    Headers of the requests to the collector, as NAME=VALUE,NAME=VALUE.
headwater.otlp.interval.ms LONG 60000 L fixed + >=100
    How often metrics are exported, in ms.
"""
