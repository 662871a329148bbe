"""Storing what the topology of a streams group looks like, for people to read."""

from __future__ import annotations

from headwater.protocol.schema import EMPTY, Int8, Int16, Int32, Message, message


@message(api=93, versions=(0, 0), flexible=0)
class StreamsGroupTopologyDescriptionUpdateRequest(Message):
    """This is our topology."""

    group_id: str
    member_id: str
    topology_epoch: Int32
    topology_description: TopologyDescription = EMPTY


class TopologyDescription(Message):
    """A topology as people see it."""

    subtopologies: list[TopologyDescriptionSubtopology] = []
    global_stores: list[TopologyDescriptionGlobalStore] = []


class TopologyDescriptionSubtopology(Message):
    """A subtopology as people see it."""

    subtopology_id: str
    nodes: list[TopologyDescriptionNode] = []


class TopologyDescriptionNode(Message):
    """A source, a processor or a sink, as people see it."""

    name: str
    node_type: Int8
    source_topics: list[str] = []
    sink_topic: str | None = None
    stores: list[str] = []
    successors: list[str] = []


class TopologyDescriptionGlobalStore(Message):
    """A store that every instance holds in whole."""

    source: TopologyDescriptionNode = EMPTY
    processor: TopologyDescriptionNode = EMPTY


@message(api=93, versions=(0, 0), flexible=0)
class StreamsGroupTopologyDescriptionUpdateResponse(Message):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
