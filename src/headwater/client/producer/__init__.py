"""The producer."""

from headwater.client.producer.producer import Producer
from headwater.client.producer.records import ProducerRecord, RecordMetadata
from headwater.client.producer.serialization import Interceptor
from headwater.client.requests.transactions import PreparedTransaction

__all__ = ["Interceptor", "PreparedTransaction", "Producer", "ProducerRecord", "RecordMetadata"]
