"""Counts words: `headwater streams run examples/streams/words.py`."""

from headwater.streams import App, f

app = App("words")  # names its checkpoints, its groups, its internal topics
lines = app.stream("lines", str)
words = lines.flat_map(f.explode(f.split(f.lower("value"), " ")))
counts = words.group_by("value").count(name="counts")  # a Table[str, int]
counts.to("word-counts")
