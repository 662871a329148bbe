"""The controller: decides changes of topics, brokers and settings as metadata records."""

from headwater.controller.decision import Decision
from headwater.controller.machine import Controller

__all__ = ["Controller", "Decision"]
