"""Follows a table of the shop while it runs: `python examples/streams/live_view.py HOST:PORT`."""

import asyncio
import sys
from dataclasses import dataclass

from headwater.streams import TableView


@dataclass
class Total:
    orders: int
    total: float


async def main(address: str) -> None:
    async with TableView(address, "shop-totals-changelog", key=str, value=Total) as totals:
        print(totals.get("at"))
        print(totals.range("a", "f"))  # both ends included, in the order of keys
        await totals.refresh()  # everything that was committed before this call
        async for change in totals.changes():
            print(f"{change.key}: {change.old} -> {change.new}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
