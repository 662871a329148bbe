"""Settings of a client metrics subscription."""

TABLE = """
interval.ms INT 300000 M cluster -
    How often matching clients push their metrics, in ms.
match LIST "" M cluster - list
    Clients it applies to, as name=pattern, such as client_id=orders-.*; empty means all.
metrics LIST "" M cluster - list
    Prefixes of the metrics to push; empty means none, * means all.
"""
