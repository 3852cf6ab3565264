import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from grainshift.runtime.compare import relative_error

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
COMPLEX = (torch.complex64, torch.complex128)
WHOLE = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool)
EIGHT = (torch.float8_e4m3fn, torch.float8_e5m2)
ALL = FLOATS + COMPLEX + WHOLE + EIGHT
few = settings(max_examples=120, deadline=None)

Pair = namedtuple("Pair", "first second")
shapes = st.lists(st.integers(0, 4), max_size=4)
seeds = st.integers(0, 10_000)


def draw(seed: int, shape: list[int], dtype: torch.dtype) -> Tensor:
    values = 4.0 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.abs().to(dtype) if dtype is torch.uint8 else values.to(dtype)


@st.composite
def nested(draw_one: st.DrawFn, depth: int = 3) -> Any:
    kind = draw_one(st.sampled_from(["tensor", "leaf", "tuple", "list", "dict", "pair"]))
    if depth == 0 or kind in ("tensor", "leaf"):
        if kind == "leaf":
            leaves = [None, "word", 3, True, 2.5, math.nan, math.inf, 1j, ..., b"b", frozenset({1})]
            return draw_one(st.sampled_from(leaves))
        return draw(draw_one(seeds), draw_one(shapes), draw_one(st.sampled_from(ALL)))
    parts = draw_one(st.lists(nested(depth=depth - 1), max_size=3))
    if kind == "dict":
        return {str(number): part for number, part in enumerate(parts)}
    if kind == "pair":
        return Pair(*[*parts, None, None][:2])
    return tuple(parts) if kind == "tuple" else parts


def copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: copy(part) for key, part in value.items()}
    if isinstance(value, Pair):
        return Pair(*map(copy, value))
    return type(value)(map(copy, value)) if isinstance(value, (tuple, list)) else value


@few
@given(nested())
def test_anything_is_no_distance_from_its_copy(value: Any) -> None:
    assert relative_error(copy(value), value) == 0.0


@few
@given(nested(), nested())
def test_any_two_things_have_a_distance_and_what_differs_in_kind_an_infinite_one(
    output: Any, reference: Any
) -> None:
    error = relative_error(output, reference)
    assert error >= 0.0  # which NaN is not
    if type(output) is not type(reference):
        assert error == math.inf


@few
@given(seeds, shapes, st.sampled_from(FLOATS), st.floats(1e-3, 1e3))
def test_the_ratio_is_that_of_the_2_norms(
    seed: int, shape: list[int], dtype: torch.dtype, factor: float
) -> None:
    reference = draw(seed, shape, dtype)
    output = (reference.double() * (1.0 + factor)).to(dtype)
    a, b = output.double(), reference.double()
    wanted = float((a - b).norm() / b.norm()) if reference.numel() else 0.0
    assert relative_error(output, reference) == pytest.approx(wanted, rel=1e-9)


@few
@given(seeds, st.integers(1, 30), st.sampled_from(COMPLEX))
def test_complex_numbers_are_compared_in_both_parts(seed: int, size: int, dtype: Any) -> None:
    real, imaginary = draw(seed, [size], torch.float32), draw(seed + 1, [size], torch.float32)
    reference = torch.complex(real, imaginary).to(dtype)
    output = reference + 1e-3j * reference.abs().max()
    wanted = float((output - reference).norm() / reference.norm())
    assert relative_error(output, reference) == pytest.approx(wanted, rel=1e-4)
    assert relative_error(reference.conj().conj(), reference) == 0.0
    assert relative_error(reference.conj(), reference.conj().resolve_conj()) == 0.0


STRANGE = (math.nan, math.inf, -math.inf)


@few
@given(
    st.lists(st.sampled_from((1.0, *STRANGE)), min_size=1, max_size=6),
    st.lists(st.sampled_from((1.0, 1.5, *STRANGE)), min_size=1, max_size=6),
    st.sampled_from(FLOATS),
)
def test_what_is_not_finite_must_be_the_same_in_the_same_place(
    reference: list[float], output: list[float], dtype: torch.dtype
) -> None:
    size = min(len(reference), len(output))
    reference, output = reference[:size], output[:size]
    error = relative_error(torch.tensor(output, dtype=dtype), torch.tensor(reference, dtype=dtype))
    pairs = list(zip(output, reference, strict=True))
    if all(a == b or (a != a and b != b) for a, b in pairs):
        assert error == 0.0
    elif any(not (a == b or (a != a and b != b)) and {a, b} - {1.0, 1.5} for a, b in pairs):
        assert error == math.inf
    else:
        assert 0.0 < error <= 0.5


@few
@given(seeds, st.integers(1, 20), st.sampled_from(WHOLE))
def test_whole_numbers_are_the_same_or_wrong(seed: int, size: int, dtype: torch.dtype) -> None:
    reference = draw(seed, [size], dtype)
    output = reference.clone()
    output[seed % size] = ~output[seed % size]
    assert relative_error(output, reference) == math.inf


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (0, 0)])
def test_empty_tensors_are_alike_when_their_shapes_are(dtype: Any, shape: tuple[int, ...]) -> None:
    empty = torch.empty(shape, dtype=dtype)
    assert relative_error(empty.clone(), empty) == 0.0
    assert relative_error(torch.empty((*shape, 1), dtype=dtype), empty) == math.inf
    assert relative_error(torch.empty((1, 0), dtype=dtype), torch.empty((0,), dtype=dtype)) > 1e9


@pytest.mark.parametrize(
    ("output", "reference"),
    [
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.ones(2), torch.ones(1, 2)),
        (torch.ones(2), torch.ones(2, device="meta")),
        (torch.ones(2, device="meta"), torch.ones(2, device="meta")),
        (torch.ones(2).to_sparse(), torch.ones(2)),
        ([torch.ones(2)], (torch.ones(2),)),
        (Pair(1, 2), (1, 2)),
        ((1, 2), Pair(1, 2)),
        ((1,), (1, 2)),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, OrderedDict(a=1)),
        ({"a": 1, "b": 2}, {"a": 1}),
        (1, 1.0),
        (True, 1),
        (None, torch.ones(1)),
        (torch.ones(1), None),
        (1.0, torch.tensor(1.0)),
        ("a", "b"),
        (0.0, math.nan),
        (np.ones(3), np.ones(3)),  # whose == is ambiguous
    ],
)
def test_what_differs_in_kind_or_cannot_be_compared_is_infinitely_far(
    output: Any, reference: Any
) -> None:
    assert relative_error(output, reference) == math.inf


class Spiteful:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("I will not be compared")

    __hash__ = object.__hash__


class Vague:
    def __eq__(self, other: object) -> Any:
        return np.array([True, False])

    __hash__ = object.__hash__


@dataclass
class Result:
    value: int


def test_objects_are_compared_by_what_they_say_of_themselves() -> None:
    assert relative_error(Result(3), Result(3)) == 0.0
    assert relative_error(Result(3), Result(4)) == math.inf
    for one, other in ((Spiteful(), Spiteful()), (Vague(), Vague()), (object(), object())):
        assert relative_error(one, other) == math.inf
        assert relative_error(one, one) == 0.0


def test_what_contains_itself_is_infinitely_far() -> None:
    one: list[Any] = []
    other: list[Any] = []
    one.append(one)
    other.append(other)
    assert relative_error(one, other) == math.inf


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-30, 1.0, 1e30, 1e200, 1e307])
def test_no_size_of_numbers_hides_a_difference_or_makes_one_up(scale: float) -> None:
    reference = scale * torch.linspace(1.0, 2.0, 50, dtype=torch.float64)
    assert relative_error(reference.clone(), reference) == 0.0
    output = reference.clone()
    output[7] *= 1.5
    assert relative_error(output, reference) == pytest.approx(0.05, rel=0.2)


def test_against_nothing_but_noughts_any_difference_is_infinite() -> None:
    assert relative_error(torch.tensor([0.0, 1e-30]), torch.zeros(2)) == math.inf
    assert relative_error(-torch.zeros(2), torch.zeros(2)) == 0.0


def test_the_largest_error_of_all_tensors_counts() -> None:
    ones = torch.ones(4)
    reference = {"a": [ones, (ones, 3)], "b": ones}
    output = {"a": [1.01 * ones, (1.5 * ones, 3)], "b": 1.1 * ones}
    assert relative_error(output, reference) == pytest.approx(0.5, rel=1e-5)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of PyTorch, about these kinds of tensors
def test_sparse_quantized_strided_and_subclassed_tensors_are_compared() -> None:
    eye = torch.eye(3)
    far = 2 * eye
    for made in (Tensor.to_sparse, Tensor.to_sparse_csr):
        assert relative_error(made(eye), made(eye)) == 0.0
        assert relative_error(made(far), made(eye)) == pytest.approx(1.0)
    quantized = [torch.quantize_per_tensor(x, 0.1, 0, torch.qint8) for x in (eye, far)]
    assert relative_error(quantized[0].clone(), quantized[0]) == 0.0
    assert relative_error(quantized[1], quantized[0]) == math.inf
    values = torch.randn(4, 6)
    assert relative_error(values.t().contiguous().t(), values) == 0.0
    assert relative_error(torch.nn.Parameter(values), values) == 0.0


def test_comparing_leaves_tensors_and_modes_as_they_were() -> None:
    weight = torch.nn.Parameter(torch.randn(3))
    out = 2 * weight
    assert relative_error(out, (2 * weight).detach()) == 0.0
    out.sum().backward()
    assert weight.grad is not None and torch.is_grad_enabled()
    with torch.inference_mode():
        assert relative_error(torch.ones(2), torch.ones(2)) == 0.0
    with torch.autocast("cpu"):
        assert relative_error(torch.ones(2), torch.full((2,), 2.0)) == pytest.approx(0.5)


class Made(TorchDispatchMode):
    """Notes the bytes of the largest tensor that an operator made."""

    largest_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and not func.is_view:
            self.largest_bytes = max(self.largest_bytes, out.numel() * out.itemsize)
        return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_comparing_large_tensors_takes_little_memory(dtype: torch.dtype) -> None:
    reference = torch.ones(40, 50_001, dtype=dtype)
    output = reference.clone()
    output[-1] *= 2.0
    with Made() as made:
        assert relative_error(output, reference) == pytest.approx(40**-0.5, rel=1e-6)
        output[-1, -1] = math.nan
        assert relative_error(output, reference) == math.inf
    assert 0 < made.largest_bytes <= 1 << 20
