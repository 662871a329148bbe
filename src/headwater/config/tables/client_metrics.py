"""Settings of a client metrics subscription."""

TABLE = """
interval.ms INT 300000 M cluster +
    .
match LIST "" M cluster + list
    .
metrics LIST "" M cluster + list
    .
"""
