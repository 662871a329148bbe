"""A controller at each level of metadata.version: its records fit, and it can be raised."""

from __future__ import annotations

import pytest

from headwater.controller.features import FeatureUpdate
from headwater.metadata.batches import decode_batches, encode_batch
from headwater.metadata.features import (
    LEVEL_DIRECTORIES,
    LEVEL_LATEST,
    LEVEL_MINIMUM,
    METADATA_VERSION,
)
from headwater.metadata.image import Image
from headwater.metadata.model import DIRECTORY_MIGRATING
from headwater.metadata.snapshot import image_records
from tests.support.controllers import Bench, directory_of

LEVELS = range(LEVEL_MINIMUM, LEVEL_LATEST + 1)


def snapshot_of(image: Image) -> list[object]:
    """Returns the records of a snapshot as a node that reads it sees them."""
    encoded = encode_batch(
        list(image_records(image)), metadata_version=image.metadata_version, now_ms=0
    )
    return [record for batch in decode_batches(encoded) for record in batch.records]


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_has_topics_leaders_and_snapshots(level: int) -> None:
    bench = Bench([1, 2, 3], metadata_version=level)
    assert bench.create("orders", 2, 3).error_code == 0
    bench.fence(1)
    assert 1 not in bench.partition("orders").isr
    bench.unfence(1)
    image = bench.machine.image
    assert snapshot_of(image) == list(image_records(image))


@pytest.mark.parametrize("level", LEVELS[:-1])
def test_every_level_can_be_raised_to_the_latest(level: int) -> None:
    bench = Bench([1, 2], metadata_version=level)
    bench.create("orders", 1, 2)
    update = FeatureUpdate(METADATA_VERSION, LEVEL_LATEST)
    bench.do(bench.machine.decide_update_features([update], validate_only=False))
    assert bench.machine.image.metadata_version == LEVEL_LATEST
    bench.fence(1)
    bench.unfence(1)
    image = bench.machine.image
    assert snapshot_of(image) == list(image_records(image))


def test_replicas_have_no_directory_below_the_level_that_knows_them() -> None:
    bench = Bench([1, 2], metadata_version=LEVEL_DIRECTORIES - 1)
    bench.create("orders", 1, 2)
    assert bench.partition("orders").directories == (DIRECTORY_MIGRATING, DIRECTORY_MIGRATING)
    update = FeatureUpdate(METADATA_VERSION, LEVEL_DIRECTORIES)
    bench.do(bench.machine.decide_update_features([update], validate_only=False))
    before = bench.machine.image.brokers[1]
    request = bench.registration(1)
    bench.do(bench.machine.decide_register_broker(request, bench.now))
    after = bench.machine.image.brokers[1]
    assert (after.epoch, after.fenced) == (before.epoch, False)
    assert (before.log_dirs, after.log_dirs) == ((), (directory_of(1),))
    assert 1 in bench.partition("orders").isr
