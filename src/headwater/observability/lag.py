"""Estimates the lag of a reader in time from samples of the end of a log."""

from __future__ import annotations

_POINTS_MAX = 16
_KEPT = 4  # of the newest points, which are never thinned out


class EndHistory:
    """The ends that a log had at some times: a few of them, closer together lately than long ago.

    Times are interpolated, so nothing has to be read from the log."""

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []

    @property
    def end(self) -> int:
        """The newest end; -1 if none was noted."""
        return self._points[-1][1] if self._points else -1

    def note(self, now: float, end: int) -> None:
        points = self._points
        if points and end < points[-1][1]:
            points.clear()  # the log was cut or created anew
        if len(points) > 1 and points[-1][1] == points[-2][1] == end:
            points[-1] = now, end  # still the same: when that began, and until when it lasted
            return
        points.append((now, end))
        if len(points) > _POINTS_MAX:
            del points[1:-_KEPT:2]

    def seconds_behind(self, offset: int, now: float) -> float:
        """Returns for how long the record at `offset` has waited; 0 at the end of the log. For a
        record that is older than what is known, at least so long."""
        points = self._points
        if not points or offset >= points[-1][1]:
            return 0.0
        before: tuple[float, int] | None = None
        for time, end in points:
            if end > offset:
                if before is None:
                    return now - time
                share = (offset - before[1]) / (end - before[1])
                return now - (before[0] + share * (time - before[0]))
            before = time, end
        raise AssertionError(f"no end after {offset} in {points}")
