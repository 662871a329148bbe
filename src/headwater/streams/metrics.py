"""The metrics of a running app, from the figures of its queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from headwater.observability.registry import Family, Kind, Labels, Sample

Figures = Mapping[str, Any]
_FAMILIES: tuple[tuple[str, Kind, str, str], ...] = (
    (
        "records_total",
        "counter",
        "Records that the query has read since its start.",
        "rows_in",
    ),
    (
        "input_records_per_second",
        "gauge",
        "Records that the query reads each second.",
        "input_rate",
    ),
    ("lag_records", "gauge", "Records that the query has not read yet.", "lag"),
    ("lag_seconds", "gauge", "How long reading them takes at the present rate.", "lag_seconds"),
    ("batch_milliseconds", "gauge", "How long the last micro-batch with records took.", "batch_ms"),
    ("state_rows", "gauge", "Rows of state.", "state_rows"),
    ("state_bytes", "gauge", "Memory that state takes.", "state_bytes"),
    ("late_records_total", "counter", "Records dropped as late since the start.", "late_rows"),
)
_ERROR_MAX = 300  # characters of a label


class AppMetrics:
    """A collector. `figures` returns those of each query, `has_failed` whether the app failed, and
    `error` the last one, as long as nothing has been processed since."""

    def __init__(
        self,
        app: str,
        figures: Callable[[], Sequence[Figures]],
        has_failed: Callable[[], bool],
        error: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._app = app
        self._figures = figures
        self._has_failed = has_failed
        self._error = error

    def collect(self) -> Iterator[Family | Sample]:
        figures = self._figures()
        yield Family("headwater_streams_up", "gauge", "Whether the app runs and has not failed.")
        yield Sample(Labels(app=self._app), 0 if self._has_failed() else 1)
        error = self._error()
        text = "1, with the last error as a label, until something is processed again."
        yield Family("headwater_streams_last_error", "gauge", text)
        if error is not None:
            yield Sample(Labels(app=self._app, error=error[:_ERROR_MAX]), 1)
        for name, kind, text, column in _FAMILIES:
            yield Family(f"headwater_streams_{name}", kind, text)
            for each in figures:
                value = each.get(column)
                if value is not None:
                    yield Sample(self._labels(each), value)
        text = "The watermark of the query, in seconds since 1970."
        yield Family("headwater_streams_watermark_seconds", "gauge", text)
        for each in figures:
            watermark = each.get("watermark")
            if watermark:
                moment = datetime.fromisoformat(str(watermark))
                yield Sample(self._labels(each), moment.timestamp())

    def _labels(self, figures: Figures) -> Labels:
        return Labels(app=self._app, query=str(figures["name"]))
