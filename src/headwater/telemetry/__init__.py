"""Metrics that clients push (KIP-714): subscriptions, and the values received."""

from headwater.telemetry.instances import ClientAttributes, Instance, Instances
from headwater.telemetry.pushed import PushedMetrics
from headwater.telemetry.subscriptions import Subscription

__all__ = ["ClientAttributes", "Instance", "Instances", "PushedMetrics", "Subscription"]
