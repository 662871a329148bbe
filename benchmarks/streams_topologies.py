"""What `benchmarks.streams` runs with `headwater streams run`: one app for each kind of load."""

from __future__ import annotations

from headwater.streams import App, f, tumbling

upper = App("map")
upper.stream("input", str).map(f.upper("value"), to=str).to("output")

windows = App("count")
by_key = windows.stream("input", str).group_by_key()
by_key.window(tumbling("1 hour")).count().to_stream().to("output")

real_time = App("real-time", latency="real-time")
real_time.stream("input", str).map(f.upper("value"), to=str).to("output")
