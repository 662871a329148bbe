"""The home for Spark whose Python processes need not compile PySpark."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.spark.session import quick_home

pytest.importorskip("pyspark")


def test_a_home_has_all_of_spark_but_the_archive(tmp_path: Path) -> None:
    home = quick_home(tmp_path)
    assert home is not None
    assert (home / "bin" / "spark-submit").is_file()
    assert (home / "jars").is_dir()
    assert not (home / "python").exists()


def test_a_link_that_leads_nowhere_is_made_anew(tmp_path: Path) -> None:
    home = quick_home(tmp_path)
    assert home is not None
    (home / "jars").unlink()
    (home / "jars").symlink_to(tmp_path / "gone")
    assert quick_home(tmp_path) == home
    assert (home / "jars").is_dir()


def test_where_nothing_can_be_written_there_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert quick_home(tmp_path / "file") is None
