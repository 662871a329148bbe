"""The metrics of a running app."""

from __future__ import annotations

from headwater.observability.exposition import render
from headwater.observability.registry import Registry
from headwater.streams.metrics import AppMetrics
from tests.support.exposition import parse


def test_figures_of_queries_are_metrics() -> None:
    figures = [
        {"name": "counts", "rows_in": 7, "lag": 3, "late_rows": 2, "watermark": None},
        {"name": "revenue", "rows_in": 1, "lag": None, "watermark": "1970-01-01T00:01:00.000Z"},
    ]
    failed = [False]
    registry = Registry()
    errors: list[str | None] = [None]
    collector = AppMetrics("shop", lambda: figures, lambda: failed[0], lambda: errors[0])
    registry.register(collector.collect)

    def value(name: str, **labels: str) -> float:
        text = "".join(render(registry))
        return parse(text)[f"headwater_streams_{name}"].value(**labels)

    assert value("up", app="shop") == 1
    assert value("records_total", query="counts") == 7
    assert value("lag_records", query="counts") == 3
    assert value("late_records_total", query="counts") == 2
    assert value("watermark_seconds", query="revenue") == 60
    assert "headwater_streams_last_error{" not in "".join(render(registry))
    errors[0] = "query counts: no leader"
    assert value("last_error", error="query counts: no leader") == 1
    failed[0] = True
    assert value("up", app="shop") == 0
