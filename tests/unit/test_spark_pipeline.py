"""The words of a pipeline file."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from headwater.spark.pipeline import PipelineError, Stream, Table, declared_in, pipeline


def test_a_function_becomes_a_pipeline_by_its_names_alone() -> None:
    @pipeline
    def big_orders(orders: Any) -> Any:
        return orders

    assert big_orders.to == "big-orders"
    assert big_orders.inputs == {"orders": Stream("orders")}
    assert not big_orders.is_batch


def test_what_is_read_is_said_for_each_parameter() -> None:
    @pipeline(
        orders=Stream("shop.orders", schema="customer string", watermark="at 10 seconds"),
        customers=Table("customers", schema="id string"),
        to="totals",
        key="customer",
        mode="update",
        every="5 seconds",
    )
    def totals(orders: Any, customers: Any) -> Any:
        return orders.join(customers, "id")

    assert [each.topic for each in totals.inputs.values()] == ["shop.orders", "customers"]
    assert (totals.to, totals.key, totals.mode, totals.every) == (
        "totals",
        "customer",
        "update",
        "5 seconds",
    )


def test_types_of_parameters_may_be_known_to_type_checkers_only() -> None:
    source = "@pipeline\ndef big_orders(orders: DataFrame) -> DataFrame:\n    return orders\n"
    if sys.version_info < (3, 14):  # which evaluates annotations late without being asked to
        source = f"from __future__ import annotations\n{source}"
    module: dict[str, Any] = {"pipeline": pipeline}
    exec(compile(source, "pipelines.py", "exec", dont_inherit=True), module)
    assert module["big_orders"].inputs == {"orders": Stream("orders")}


def test_a_pipeline_over_tables_only_runs_once() -> None:
    @pipeline(customers=Table("customers", schema="id string"))
    def report(customers: Any) -> Any:
        return customers

    assert report.is_batch


def test_a_module_has_its_pipelines_in_order_and_each_once() -> None:
    @pipeline
    def second(a: Any) -> Any:
        return a

    @pipeline
    def first(a: Any) -> Any:
        return a

    namespace = {"x": second, "alias": second, "y": first, "other": 1}
    assert [each.name for each in declared_in(namespace)] == ["second", "first"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"mode": "complete", "name": "x"}, "mode 'complete': expected append"),
        ({"to": "not a topic", "name": "x"}, "not a valid name of a topic"),
    ],
)
def test_what_cannot_be_is_said_when_it_is_declared(arguments: Any, says: str) -> None:
    with pytest.raises(PipelineError) as caught:
        pipeline(**arguments)(lambda a: a)
    assert says in str(caught.value)


def test_an_input_that_cannot_be_is_said_with_its_topic() -> None:
    with pytest.raises(PipelineError, match="topic orders: watermark 'soon'"):
        Stream("orders", schema="at timestamp", watermark="soon")
    with pytest.raises(PipelineError, match="a name consists of letters"):
        Stream("orders and more")
    with pytest.raises(PipelineError, match="totals has no parameter order: it takes orders"):

        @pipeline(order=Stream("orders"))
        def totals(orders: Any) -> Any:
            return orders
