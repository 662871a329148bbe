"""The examples of processors, whose tests need no Spark."""

from examples.streams.test_baskets import (
    test_the_baskets_of_version_1_are_kept,
    test_what_comes_late_is_in_its_place,
)

__all__ = ["test_the_baskets_of_version_1_are_kept", "test_what_comes_late_is_in_its_place"]
