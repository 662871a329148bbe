"""The clients: producer, consumer and admin over one asyncio core.

`Cluster` is what they share: connections, metadata, coordinators, retries. What users import is
exported by `headwater` (asyncio) and `headwater.blocking`.
"""
