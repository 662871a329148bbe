"""The producer."""

from headwater.client.producer.producer import Producer
from headwater.client.producer.records import ProducerRecord, RecordMetadata
from headwater.client.producer.serialization import Interceptor

__all__ = ["Interceptor", "Producer", "ProducerRecord", "RecordMetadata"]
