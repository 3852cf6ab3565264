"""The vectors that the kernels are compiled for, as their `vectors.h` and `product.h` pick them."""

from dataclasses import dataclass

from grainshift.core.machine import Machine
from grainshift.families.recurrence.choice import BF16, FP32, INT8

WIDTH = {"LSTM": 4, "GRU": 3, "RNN_TANH": 2, "RNN_RELU": 2}  # vectors side by side in a panel
INPUTS = {FP32: 1, BF16: 2, INT8: 4}  # of one word of a panel
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Vectors:
    """How wide a vector is, and how many registers hold one each."""

    width_bytes: int
    registers: int

    @property
    def lanes(self) -> int:
        """Floats of a vector."""
        return self.width_bytes // _FLOAT_BYTES

    def units(self, kind: str) -> int:
        """Hidden units of one panel."""
        return self.lanes * (WIDTH[kind] if kind.startswith("RNN") else 1)

    def most_rows(self, kind: str) -> int:
        """The rows that one product takes."""
        width = WIDTH[kind]
        return max(1, min(8, (self.registers - width - 1) // width))

    def stacked(self, kind: str, rows: int, word: int) -> float:
        """Sums without a register, for each input; a word of a panel holds `word` inputs."""
        sums = WIDTH[kind] * rows
        turn = word * (1 if sums * word >= 8 else 2 if sums * word >= 6 else 4)
        ways = turn if rows == 1 or sums < 8 else 1
        return max(0, ways * sums + 2 - self.registers) / turn


def vectors_of(machine: Machine) -> Vectors:
    """The vectors that a compiler has on this machine."""
    sets = machine.instruction_sets
    if "avx512f" in sets:
        return Vectors(64, 32)
    if "avx" in sets or "avx2" in sets:
        return Vectors(32, 16)
    return Vectors(16, 32 if "neon" in sets or "asimd" in sets else 16)
