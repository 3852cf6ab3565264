"""The words for how a recurrent layer may run, and how each cuts steps into blocks. No torch."""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from grainshift.core.choice import Choice, Exactness, is_plan, parts_of, plan

STOCK = Choice("stock")
OPERATORS, PACKED = "operators", "packed"
SOLO, WAVE = "solo", "wave"
FP32, BF16, INT8 = "fp32", "bf16", "int8"
LOWER = (BF16, INT8)


def rolled(*words: str) -> Choice:
    """One step at a time: the input product and the recurrent product of each step by itself."""
    return _choice("rolled", (), words)


def unrolled(steps: int, *words: str) -> Choice:
    """The input products of `steps` steps as one product, then that many step bodies."""
    return _choice("unrolled", (steps,), words)


def hybrid(steps: int, *words: str) -> Choice:
    """The first `steps` steps unrolled, the rest rolled."""
    return _choice("hybrid", (steps,), words)


def planned(*sweeps: Choice) -> Choice:
    """A profile for each sweep of a stack; threads and precision they have in common."""
    assert len({tuple(_words(sweep)) for sweep in sweeps}) == 1
    return plan(sweeps)


def parts(choice: Choice, sweeps: int) -> tuple[Choice, ...]:
    """What each sweep of a stack does."""
    own = parts_of(choice) if is_plan(choice) else (choice,) * sweeps
    assert len(own) == sweeps
    return own


def uses_operators(choice: Choice) -> bool:
    """Is it made of PyTorch's operators, and not of our kernels?"""
    return choice == STOCK or OPERATORS in _words(choice) or PACKED in _words(choice)


def is_packed(choice: Choice) -> bool:
    """Does it run PyTorch's operators on copies of the weights that are packed for oneDNN?"""
    return PACKED in _words(choice)


def is_solo(choice: Choice) -> bool:
    """Do its kernels run on the caller's thread alone?"""
    return SOLO in _words(choice)


def waves(choice: Choice) -> bool:
    """Do its layers run side by side, each a block of steps behind the one before it?"""
    return WAVE in _words(choice)


def precision_of(choice: Choice) -> str:
    """The precision in which it keeps its weights."""
    words = _words(choice)
    return next((word for word in LOWER if word in words), FP32)


def widest_block(choice: Choice) -> int:
    """The most steps whose input products are held at once."""
    if is_plan(choice):
        return max(map(widest_block, parts_of(choice)))
    first = choice.args[0] if choice.args else 1
    return first if isinstance(first, int) else 1


def until(choice: Choice, steps: int) -> int:
    """The step before which input products are made in blocks."""
    return min(widest_block(choice), steps) if choice.name == "hybrid" else steps


def blocks(choice: Choice, steps: int) -> Iterator[int]:
    """The sizes of the blocks, first to last, that a sweep's `steps` steps are cut into."""
    left, size = steps, widest_block(choice)
    while left:
        block = min(size, left)
        yield block
        left -= block
        size = 1 if choice.name == "hybrid" else size


@lru_cache(maxsize=512)
def block_counts(choice: Choice, steps: int) -> tuple[tuple[int, int], ...]:
    """How many blocks there are of each size."""
    return tuple(sorted(Counter(blocks(choice, steps)).items()))


def _words(choice: Choice) -> list[str]:
    """What a Choice says beside its profile; of a plan, what all its parts say."""
    some = parts_of(choice)[0] if is_plan(choice) else choice
    return [word for word in some.args if isinstance(word, str)]


def _choice(name: str, args: tuple[int, ...], words: tuple[str, ...]) -> Choice:
    exactness = Exactness.LOWER if set(LOWER) & set(words) else Exactness.ROUNDING
    return Choice(name, (*args, *words), exactness)
