"""Hypothesis strategies for record batches and what is in them."""

from __future__ import annotations

from hypothesis import strategies as st

INT64 = st.integers(-(2**63), 2**63 - 1)
BLOB = st.none() | st.binary(max_size=40) | st.integers(0, 300).map(lambda size: b"z" * size)
NAME = st.text(st.characters(codec="utf-8"), max_size=6)
RECORD = st.tuples(BLOB, BLOB, st.lists(st.tuples(NAME, BLOB), max_size=3), INT64)
RECORDS = st.lists(RECORD, min_size=1, max_size=8)
CODEC = st.sampled_from(range(5))
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "base_offset": st.integers(0, 2**62),
        "leader_epoch": st.integers(-1, 2**31 - 1),
        "producer_id": st.integers(-1, 2**63 - 1),
        "producer_epoch": st.integers(-1, 2**15 - 1),
        "base_sequence": st.integers(-1, 2**31 - 1),
        "transactional": st.booleans(),
        "control": st.booleans(),
        "log_append_time": st.none() | INT64,
    },
)
