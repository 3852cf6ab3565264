"""The words for how a recurrent layer may run, and how each cuts steps into blocks. No torch."""

from collections.abc import Iterator

from grainshift.core.choice import Choice, Exactness

STOCK = Choice("stock")
PACKED = "packed"


def rolled(*, packed: bool = False) -> Choice:
    """One step at a time: the input product and the recurrent product of each step by itself."""
    return _choice("rolled", (), packed)


def unrolled(steps: int, *, packed: bool = False) -> Choice:
    """The input products of `steps` steps as one product, then that many step bodies."""
    return _choice("unrolled", (steps,), packed)


def hybrid(steps: int, *, packed: bool = False) -> Choice:
    """The first `steps` steps unrolled, the rest rolled."""
    return _choice("hybrid", (steps,), packed)


def is_packed(choice: Choice) -> bool:
    """Does it run on copies of the weights that are packed for oneDNN?"""
    return PACKED in choice.args


def widest_block(choice: Choice) -> int:
    """The most steps whose input products are held at once."""
    first = choice.args[0] if choice.args else 1
    return first if isinstance(first, int) else 1


def blocks(choice: Choice, steps: int) -> Iterator[int]:
    """The sizes of the blocks, first to last, that `steps` steps are cut into."""
    left, size = steps, widest_block(choice)
    while left:
        block = min(size, left)
        yield block
        left -= block
        size = 1 if choice.name == "hybrid" else size


def _choice(name: str, args: tuple[int, ...], packed: bool) -> Choice:
    return Choice(name, (*args, PACKED) if packed else args, Exactness.ROUNDING)
