"""The data source `headwater`, which Spark looks up by name, for reading and for writing.

Spark makes one of these wherever it plans a query, in processes of its own, and asks it for a
reader or a writer. So it holds only the options, and imports the rest when needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from headwater.spark.errors import PLAIN, plainly

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class HeadwaterSource(DataSource):
    """Topics of Headwater or Apache Kafka, with the options and columns of format("kafka")."""

    @classmethod
    def name(cls) -> str:
        return "headwater"

    @plainly
    def schema(self) -> str:
        from headwater.spark.columns import spark_schema
        from headwater.spark.options import parse

        # The kind of read is not known yet; rules that depend on it are checked later.
        return spark_schema(parse(self.options, streaming=None))

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        from headwater.spark.batch import make_reader

        return make_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from headwater.spark.micro_batch import MicroBatchStream, RefusedStream

        try:
            return MicroBatchStream(self.options, schema)
        except PLAIN as error:
            # An error that is raised here is lost: Spark complains that it has no reader to stop.
            return RefusedStream(error)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headwater.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from headwater.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite=overwrite)
