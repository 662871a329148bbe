"""The vocabulary in which a message says its own schema.

A message is a class; its annotated attributes, in order, are its fields on the wire. Type checkers
see plain `str`, `int`, `bytes` and `list`; the codec reads the rest from the annotations, and only
when a message is first used, so that importing a module of messages costs next to nothing.

    @message(api=12, versions=(0, 4), flexible=4)
    class HeartbeatRequest(Message):
        group_id: str
        generation_id: Int32
        member_id: str
        group_instance_id: Annotated[str | None, since(3)] = None

A field without a default must be given. `= []` means a new list for each object, and `= EMPTY` a
new struct with its own defaults. `| None` makes a field nullable in all its versions, unless
`nullable(...)` says in which.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
)

from headwater.model import ZERO_ID

M = TypeVar("M", bound="Message")

LATEST = 0x7FFF


class Wire:
    """The encoding of a plain value: its kind and, if its size is fixed, its struct code."""

    __slots__ = ("code", "kind", "size", "zero")

    def __init__(self, kind: str, code: str, size: int, zero: object) -> None:
        self.kind = kind
        self.code = code
        self.size = size
        self.zero = zero


_BOOL = Wire("bool", "?", 1, False)
_STRING = Wire("string", "", 0, "")
_BYTES = Wire("bytes", "", 0, b"")
_RECORDS = Wire("records", "", 0, b"")

Int8 = Annotated[int, Wire("int8", "b", 1, 0)]
Int16 = Annotated[int, Wire("int16", "h", 2, 0)]
Int32 = Annotated[int, Wire("int32", "i", 4, 0)]
Int64 = Annotated[int, Wire("int64", "q", 8, 0)]
UInt16 = Annotated[int, Wire("uint16", "H", 2, 0)]
UInt32 = Annotated[int, Wire("uint32", "I", 4, 0)]
Float64 = Annotated[float, Wire("float64", "d", 8, 0.0)]
Uuid = Annotated[bytes, Wire("uuid", "16s", 16, ZERO_ID)]
# Record batches. What was decoded is a view into the frame; nothing was copied.
Records = Annotated[bytes | memoryview, _RECORDS]
# Record batches that may also be a slice of a file: anything with a length. See `encode_parts`.
RecordsSlice = Annotated[Any, _RECORDS]


class _Mark:
    """One word in an annotation: what it sets, and to what."""

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value


def since(version: int) -> _Mark:
    """The field exists from this version on."""
    return _Mark("since", version)


def until(version: int) -> _Mark:
    """The last version in which the field exists."""
    return _Mark("until", version)


def nullable(first: int, last: int = LATEST) -> _Mark:
    """The versions in which the field may be null, where they are not all of its versions."""
    return _Mark("nullable", (first, last))


def tag(number: int, *, since: int = 0) -> _Mark:
    """A tagged field: it exists from that version on, and takes no bytes while it is default."""
    return _Mark("tag", (number, since))


# Where the field does not exist, its value is dropped without a word.
ignorable = _Mark("ignorable", True)
# None stands for a tagged struct that is not there; the wire itself has no null for it.
never_null = _Mark("never_null", True)
# A string with a two-byte length even in flexible versions.
never_compact = _Mark("never_compact", True)
# Never shown by repr: passwords, tokens, values of configs.
sensitive = _Mark("sensitive", True)

# The default of a struct: a new object with its own defaults.
EMPTY: Any = type("_Empty", (), {"__slots__": (), "__repr__": lambda self: "EMPTY"})()


class Field:
    """A field as the codec sees it: an annotation, read once."""

    __slots__ = (
        "default",
        "ignorable",
        "is_array",
        "name",
        "never_compact",
        "never_null",
        "nullable",
        "required",
        "sensitive",
        "since",
        "struct",
        "tag",
        "until",
        "wire",
    )

    def __init__(self, name: str, annotation: Any, default: Any, *, required: bool) -> None:
        self.name = name
        self.required = required
        self.since = 0
        self.until = LATEST
        self.tag: int | None = None
        self.nullable: tuple[int, int] | None = None
        self.ignorable = self.never_null = self.never_compact = self.sensitive = False
        self.struct: type[Message] | None = None
        self.wire: Wire | None = None
        plain, may_be_null = self._peel(annotation)
        if may_be_null and self.nullable is None and not self.never_null:
            self.nullable = (0, LATEST)
        self.is_array = get_origin(plain) is list
        if self.is_array:
            plain, _ = self._peel(get_args(plain)[0])
        if self.wire is None:
            if plain is str:
                self.wire = _STRING
            elif plain is bytes:
                self.wire = _BYTES
            elif plain is bool:
                self.wire = _BOOL
            else:
                self.struct = plain
        self.default = default
        if required:
            self.default = [] if self.is_array else EMPTY if self.wire is None else self.wire.zero

    def _peel(self, annotation: Any) -> tuple[Any, bool]:
        """Take `Annotated` and `| None` off, in any order; what they said is kept."""
        may_be_null = False
        while True:
            if get_origin(annotation) is Annotated:
                for mark in annotation.__metadata__:
                    if isinstance(mark, Wire):
                        self.wire = mark
                    elif mark.name == "tag":
                        self.tag, self.since = mark.value
                    else:
                        setattr(self, mark.name, mark.value)
                annotation = annotation.__origin__
                continue
            arguments = get_args(annotation)
            if type(None) in arguments:
                may_be_null = True
                others = [argument for argument in arguments if argument is not type(None)]
                if len(others) == 1:
                    annotation = others[0]
                    continue
            return annotation, may_be_null

    def exists_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        return self.nullable is not None and self.nullable[0] <= version <= self.nullable[1]

    def fresh_default(self) -> Any:
        if self.default is EMPTY:
            assert self.struct is not None
            return empty(self.struct)
        return [] if self.is_array and self.default is not None else self.default


@dataclass_transform(kw_only_default=True)
class MessageType(type):
    """Turns the annotations of a message into slots, and its class attributes into defaults."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> MessageType:
        annotations: dict[str, str] = namespace.get("__annotations__", {})
        names = tuple(n for n in annotations if not annotations[n].startswith("ClassVar"))
        namespace["_defaults"] = {n: namespace.pop(n) for n in names if n in namespace}
        namespace["_fields"] = None
        namespace["_decoders"] = {}
        namespace["_encoders"] = {}
        namespace["_part_encoders"] = {}
        namespace["__slots__"] = names
        return super().__new__(cls, name, bases, namespace)


class Message(metaclass=MessageType):
    """The base class of every request, response and record, and of their parts."""

    # Tagged fields that the schema does not know: kept as they came, and written again.
    unknown_tags: dict[int, bytes] | None = None

    API: ClassVar[int | None] = None
    VERSIONS: ClassVar[tuple[int, int]] = (0, LATEST)
    FLEXIBLE: ClassVar[int | None] = None

    _defaults: ClassVar[dict[str, Any]]
    _fields: ClassVar[tuple[Field, ...] | None]
    _decoders: ClassVar[dict[int, Any]]
    _encoders: ClassVar[dict[int, Any]]
    _part_encoders: ClassVar[dict[int, Any]]

    if not TYPE_CHECKING:  # checkers derive it from the fields

        def __init__(self, **values: Any) -> None:
            _install_init(type(self))
            self.__init__(**values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        for name in type(self).__annotations__:
            if getattr(self, name) != getattr(other, name):
                return False
        return self.unknown_tags == other.unknown_tags

    __hash__ = None  # type: ignore[assignment]  # a message is mutable

    def __repr__(self) -> str:
        values = [
            f"{field.name}={_shown(getattr(self, field.name), field)}"
            for field in fields_of(type(self))
        ]
        if self.unknown_tags:
            values.append(f"unknown_tags={self.unknown_tags}")
        return f"{type(self).__name__}({', '.join(values)})"


def message(
    *, api: int | None = None, versions: tuple[int, int], flexible: int | None
) -> Callable[[type[M]], type[M]]:
    """Declares a message: its key, its versions, and the first flexible one."""

    def mark(cls: type[M]) -> type[M]:
        cls.API = api
        cls.VERSIONS = versions
        cls.FLEXIBLE = flexible
        return cls

    return mark


def fields_of(cls: type[Message]) -> tuple[Field, ...]:
    """The fields of a message in the order of the wire, read from its annotations once."""
    fields = cls._fields
    if fields is None:
        names = vars(sys.modules[cls.__module__])
        fields = tuple(
            Field(
                name,
                _resolve(annotation, names),
                cls._defaults.get(name),
                required=name not in cls._defaults,
            )
            for name, annotation in cls.__annotations__.items()
        )
        cls._fields = fields
    return fields


def _resolve(annotation: str, names: dict[str, Any]) -> Any:
    """Evaluates an annotation in its module. Most are one word, and need no evaluation."""
    found = names.get(annotation) or _PLAIN.get(annotation)
    # The text is our own source, as typing.get_type_hints takes it too.
    return found if found is not None else eval(annotation, names)


_PLAIN = {"str": str, "bytes": bytes, "bool": bool}


def empty(cls: type[M]) -> M:
    """A message with nothing set, not even what its constructor asks for."""
    made = cls.__new__(cls)
    for field in fields_of(cls):
        setattr(made, field.name, field.fresh_default())
    made.unknown_tags = None
    return made


def _install_init(cls: type[Message]) -> None:
    """Write the `__init__` of a class on its first use: straight-line code is three times as fast
    as a loop over the fields, and most classes are only ever decoded."""
    names: dict[str, Any] = {"missing": object()}
    parameters = ["self", "*"]
    body = []
    for field in fields_of(cls):
        name = field.name
        value = name
        if field.required:
            parameters.append(name)
        elif field.default == []:
            parameters.append(f"{name}=missing")
            value = f"[] if {name} is missing else {name}"
        elif field.default is EMPTY:
            names[f"new_{name}"] = field.fresh_default
            parameters.append(f"{name}=missing")
            value = f"new_{name}() if {name} is missing else {name}"
        else:
            parameters.append(f"{name}={field.default!r}")
        body.append(f"    self.{name} = {value}\n")
    parameters.append("unknown_tags=None")
    body.append("    self.unknown_tags = unknown_tags\n")
    exec(f"def __init__({', '.join(parameters)}):\n{''.join(body)}", names)
    names["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = names["__init__"]  # type: ignore[method-assign]


def _shown(value: Any, field: Field) -> str:
    if field.sensitive and value is not None:
        return "[hidden]"
    if field.wire is _RECORDS and value is not None:
        return f"<{len(value)} bytes>"
    return repr(value)
