"""`f`: the functions of `pyspark.sql.functions`, without a running Spark.

    f.explode(f.split(f.lower("value"), " "))

An expression remembers what it was made of and becomes a Column when its query is planned. Until
then it can say which columns it reads, so that a wrong name is found when the topology is built.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

from headwater.streams.errors import TopologyError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql import functions as f
else:

    class _Functions:
        """Has every function of `pyspark.sql.functions`."""

        def __getattr__(self, name: str) -> Callable[..., Expression]:
            if name.startswith("__"):
                raise AttributeError(name)
            return _function(name)

    f = _Functions()

__all__ = ["Expression", "f", "is_column", "names_read", "result_name", "to_column", "written"]

_GIVEN = "<given>"  # a Column that Spark hands to a function of the user
_UDFS = ("udf", "pandas_udf", "arrow_udf", "udtf", "arrow_udtf", "call_udf")
_INFIX = {
    "__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__mod__": "%",
    "__pow__": "**", "__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=",
    "__gt__": ">", "__ge__": ">=", "__and__": "&", "__or__": "|",
}  # fmt: skip
_REFLECTED = {
    "__radd__": "+", "__rsub__": "-", "__rmul__": "*", "__rtruediv__": "/", "__rmod__": "%",
    "__rpow__": "**", "__rand__": "&", "__ror__": "|",
}  # fmt: skip


class Expression:
    """A function, an operator or a method of Column, and what it is applied to."""

    __slots__ = ("_args", "_kwargs", "_name", "_operand")
    __hash__ = None  # type: ignore[assignment]  # as with Column, == makes an expression

    def __init__(
        self,
        name: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        operand: Any = None,
    ) -> None:
        self._name = name
        self._args = args
        self._kwargs = dict(kwargs or {})
        self._operand = operand

    def __getattr__(self, name: str) -> Callable[..., Expression]:
        if name.startswith("_"):
            raise AttributeError(name)
        _check_method(name)

        def method(*args: Any, **kwargs: Any) -> Expression:
            return Expression(name, args, kwargs, self)

        return method

    def __getitem__(self, key: Any) -> Expression:
        return Expression("__getitem__", (key,), operand=self)

    def __invert__(self) -> Expression:
        return Expression("__invert__", operand=self)

    def __neg__(self) -> Expression:
        return Expression("__neg__", operand=self)

    def __bool__(self) -> bool:
        raise TopologyError(
            str(self),
            "a column has no truth value while the topology is built",
            then="combine conditions with '&', '|' and '~', each in parentheses",
        )

    def __iter__(self) -> Any:
        raise TypeError("a column cannot be iterated")

    def __reduce__(self) -> Any:
        return Expression, (self._name, self._args, self._kwargs, self._operand)

    def __str__(self) -> str:
        own = [written(each) for each in self._args]
        own += [f"{name}={written(each)}" for name, each in self._kwargs.items()]
        if self._operand is None:
            if self._name in ("col", "column") and self._args:
                return str(self._args[0])
            return f"{self._name}({', '.join(own)})"
        operand = written(self._operand)
        if self._name in _INFIX:
            return f"({operand} {_INFIX[self._name]} {own[0]})"
        if self._name in _REFLECTED:
            return f"({own[0]} {_REFLECTED[self._name]} {operand})"
        if self._name == "__getitem__":
            return f"{operand}[{own[0]}]"
        if self._name in ("__invert__", "__neg__"):
            return f"{'~' if self._name == '__invert__' else '-'}{operand}"
        return f"{operand}.{self._name}({', '.join(own)})"

    def __repr__(self) -> str:
        return f"<{self}>"

    def resolve(self) -> Column:
        """Makes the Column; Spark must be running."""
        if self._name == _GIVEN:
            return to_column(self._operand)
        args = [_resolved(each) for each in self._args]
        kwargs = {name: _resolved(each) for name, each in self._kwargs.items()}
        made: Column
        if self._operand is None:
            from pyspark.sql import functions

            made = getattr(functions, self._name)(*args, **kwargs)
        else:
            made = getattr(to_column(self._operand), self._name)(*args, **kwargs)
        return made

    def reads(self) -> Iterable[str] | None:
        """Yields the columns that are read; None if that is unknown before Spark runs."""
        found: set[str] = set()
        return found if self._collect(found) else None

    def _collect(self, found: set[str]) -> bool:
        if self._operand is not None:
            parts: list[Any] = [self._operand, *self._args, *self._kwargs.values()]
            return all(_collect(each, found, text=False) for each in parts)
        if self._name in ("col", "column"):
            return _collect(self._args[0], found, text=True)
        if self._name == "expr":
            return False
        texts = _column_parameters(self._name, self._args, self._kwargs)
        known = [*self._args, *self._kwargs.values()]
        pairs = zip(known, texts, strict=True)
        return all(_collect(each, found, text=text) for each, text in pairs)

    def result_name(self) -> str | None:
        if self._name == "alias" and self._operand is not None:
            return str(self._args[0])
        if self._operand is None and self._name in ("col", "column"):
            name = str(self._args[0])
            return name.rpartition(".")[2] if name.isidentifier() or "." in name else name
        return None

    @property
    def function(self) -> str | None:
        """The function of Spark that it applies; None for an operator or a method of Column."""
        return self._name if self._operand is None else None

    def has_function(self, *names: str) -> bool:
        """Whether one of these functions of Spark is applied somewhere in it."""
        if self._operand is None and self._name in names:
            return True
        parts = [self._operand, *self._args, *self._kwargs.values()]
        return any(isinstance(each, Expression) and each.has_function(*names) for each in parts)


def _operator(name: str) -> Callable[[Expression, Any], Expression]:
    def apply(self: Expression, other: Any) -> Expression:
        return Expression(name, (other,), operand=self)

    return apply


for _name in (*_INFIX, *_REFLECTED):
    setattr(Expression, _name, _operator(_name))


@cache
def _function(name: str) -> Callable[..., Expression]:
    from pyspark.sql import functions

    known = getattr(functions, name, None)
    if name in _UDFS:
        raise TopologyError(
            f"f.{name}",
            "Python functions are not registered",
            then="pass the function to the operator itself, such as stream.map(function)",
        )
    if known is None or not callable(known):
        near = get_close_matches(name, dir(functions), n=1)
        hint = f"; did you mean f.{near[0]}?" if near else ""
        raise AttributeError(f"pyspark.sql.functions has no function {name!r}{hint}")

    def make(*args: Any, **kwargs: Any) -> Expression:
        try:
            _signature(name).bind(*args, **kwargs)
        except TypeError as error:
            raise TopologyError(f"f.{name}", str(error)) from None
        return Expression(name, args, kwargs)

    make.__name__ = name
    make.__doc__ = getattr(known, "__doc__", None)
    return make


@cache
def _signature(name: str) -> inspect.Signature:
    from pyspark.sql import functions

    return inspect.signature(getattr(functions, name))


def _column_parameters(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[bool]:
    """Says for each argument whether a text in it is the name of a column."""
    parameters = list(_signature(name).parameters.values())
    texts = []
    for at in range(len(args)):
        parameter = parameters[min(at, len(parameters) - 1)]
        texts.append("ColumnOrName" in str(parameter.annotation))
    by_name = {each.name: each for each in parameters}
    names = (by_name.get(each) for each in kwargs)
    texts += [each is not None and "ColumnOrName" in str(each.annotation) for each in names]
    return texts


@cache
def _methods() -> frozenset[str]:
    from pyspark.sql import Column

    return frozenset(name for name in dir(Column) if not name.startswith("_"))


def _check_method(name: str) -> None:
    if name not in _methods():
        near = get_close_matches(name, _methods(), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise AttributeError(f"a column has no method {name!r}{hint}")


def _collect(value: Any, found: set[str], *, text: bool) -> bool:
    if isinstance(value, Expression):
        return value._collect(found)
    if isinstance(value, str):
        if text and value != "*":
            found.add(value)
        return True
    if isinstance(value, list | tuple | set):
        return all(_collect(each, found, text=text) for each in value)
    return not (is_column(value) or callable(value))


def _resolved(value: Any) -> Any:
    if isinstance(value, Expression):
        return value.resolve()
    if isinstance(value, list | tuple):
        return type(value)(_resolved(each) for each in value)
    if callable(value) and inspect.isfunction(value):  # of transform, filter, aggregate, ...

        @wraps(value)
        def called(*columns: Any) -> Any:
            return _resolved(value(*(Expression(_GIVEN, operand=each) for each in columns)))

        return called
    return value


def is_column(value: Any) -> bool:
    """Whether this is a column of Spark or an expression, and not a Python function."""
    return isinstance(value, Expression) or type(value).__name__ == "Column"


def to_column(value: Any) -> Column:
    """Makes a Column of an expression, a column or the name of one; Spark must be running."""
    if isinstance(value, Expression):
        return value.resolve()
    if isinstance(value, str):
        from pyspark.sql import functions

        return functions.col(value)
    column: Column = value
    return column


def names_read(value: Any) -> frozenset[str] | None:
    """Returns the names of the columns that are read; None if they are unknown."""
    found: set[str] = set()
    return frozenset(found) if _collect(value, found, text=True) else None


def result_name(value: Any) -> str | None:
    """Returns the name that a column gives its result, if that is known before Spark runs."""
    if isinstance(value, str):
        return value
    return value.result_name() if isinstance(value, Expression) else None


def written(value: Any) -> str:
    """Returns an expression, or an argument of one, for people and for fingerprints."""
    if isinstance(value, Expression):
        return str(value)
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return repr(value) if isinstance(value, str) else str(value)
