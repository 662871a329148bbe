"""Draws the result of `headwater demo`: revenue by window, and the part of late orders."""

from __future__ import annotations

from pathlib import Path

from headwater.cli.demo_shop import PRODUCTS, Shop


def draw(shop: Shop, picture: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    windows = shop.windows()
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    below = [0.0] * len(windows)
    labels = [f"{begins:%H:%M:%S}" for begins in windows]
    for product in PRODUCTS:
        heights = [
            shop.results[window] - shop.late_revenue.get(window, 0.0)
            if (window := (begins, product)) in shop.results
            else 0.0
            for begins in windows
        ]
        axes.bar(labels, heights, bottom=below, label=product)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    late = [
        sum(shop.late_revenue.get((begins, product), 0.0) for product in PRODUCTS)
        for begins in windows
    ]
    axes.bar(labels, late, bottom=below, color="lightgrey", hatch="//", label="late orders")
    axes.set_title("Revenue by event-time window, as Spark wrote it to the topic")
    axes.set_ylabel("revenue")
    axes.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False)
    figure.autofmt_xdate(rotation=45)
    figure.tight_layout()
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120)
