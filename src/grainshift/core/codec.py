"""Turns the core's values into JSON and back, by their declared types. Never unpickles."""

import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from grainshift.core import events, instructions

T = TypeVar("T")


def encode(value: Any) -> Any:
    """A value of the core as JSON data; a dataclass becomes the list of its fields."""
    if is_dataclass(value):
        return [encode(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    return value


def decode(kind: type[T], data: Any) -> T:
    """The value of type `kind` that `encode` turned into `data`."""
    decoder: Callable[[Any], T] = _decoder(cast(Any, kind))
    return decoder(data)


def encode_tagged(value: Any) -> tuple[str, Any]:
    """An event or instruction as its name and its fields."""
    return type(value).__name__, encode(value)


def decode_event(tag: str, data: Any) -> events.AnyEvent:
    """The event that `encode_tagged` turned into `tag` and `data`."""
    return decode(_kinds(events.AnyEvent)[tag], data)  # type: ignore[no-any-return]


def decode_instruction(tag: str, data: Any) -> instructions.AnyInstruction:
    """The instruction that `encode_tagged` turned into `tag` and `data`."""
    return decode(_kinds(instructions.AnyInstruction)[tag], data)  # type: ignore[no-any-return]


@cache
def _kinds(union: Any) -> dict[str, Any]:
    return {kind.__name__: kind for kind in get_args(union)}


@cache
def _decoder(kind: Any) -> Any:
    if is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_decoder(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    origin, args = get_origin(kind), get_args(kind)
    if origin is tuple:
        return _tuple_decoder(args)
    if origin in (Union, types.UnionType) and type(None) in args:
        inner = [arg for arg in args if arg is not type(None)]
        some = _decoder(inner[0]) if len(inner) == 1 else _same
        return lambda data: None if data is None else some(data)
    return float if kind is float else _same


def _dataclass_decoder(kind: Any) -> Any:
    state: list[Any] = []

    def decode_fields(data: Any) -> Any:
        if not state:  # late, so that a type may contain itself
            hints = get_type_hints(kind)
            state.extend(_decoder(hints[field.name]) for field in fields(kind))
        if len(data) > len(state):
            raise ValueError(f"{kind.__name__} has {len(state)} fields, {len(data)} were given")
        # An older record is shorter: what it lacks takes the default, or is missed by name.
        return kind(*(part(item) for part, item in zip(state, data, strict=False)))

    return decode_fields


def _tuple_decoder(args: Any) -> Any:
    if len(args) == 2 and args[1] is Ellipsis:
        item = _decoder(args[0])
        return lambda data: tuple(item(value) for value in data)
    parts = [_decoder(arg) for arg in args]
    return lambda data: tuple(part(value) for part, value in zip(parts, data, strict=True))


def _same(data: Any) -> Any:
    return data
