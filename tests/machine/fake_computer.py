"""A fake computer for tests: trees that look like /proc and /sys, written to a folder."""

from dataclasses import dataclass
from pathlib import Path

CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Fake Xeon
cpu MHz\t\t: 3000.000
flags\t\t: fpu sse2 avx avx2 fma avx512f avx512_vnni avx512_bf16 amx_tile amx_bf16

processor\t: 1
model name\t: Another
"""
STAT = "cpu  10 0 10 900 0 0 0 0 0 0\ncpu0 5 0 5 450 0 0 0 0 0 0\ncpu1 5 0 5 450 0 0 0 0 0 0\n"
MEMINFO = "MemTotal:       16777216 kB\nMemFree:         1000 kB\nMemAvailable:    8388608 kB\n"


@dataclass(frozen=True)
class FakeComputer:
    root: Path

    @property
    def proc(self) -> Path:
        return self.root / "proc"

    @property
    def sys(self) -> Path:
        return self.root / "sys"

    @property
    def cgroup(self) -> Path:
        return self.sys / "fs/cgroup"

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def group(self, folder: str, **files: str) -> None:
        """Control group files, with '__' for the dot in their names."""
        for name, text in files.items():
            self.write(f"sys/fs/cgroup/{folder}/{name.replace('__', '.')}", text)


def two_cores(root: Path) -> FakeComputer:
    """Two cores, two cache levels, 16 GiB, no control group."""
    computer = FakeComputer(root)
    computer.write("proc/cpuinfo", CPUINFO)
    computer.write("proc/stat", STAT + "intr 1 2 3\nctxt 5\n")
    computer.write("proc/meminfo", MEMINFO)
    computer.write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-1\n")
    computer.write("sys/devices/system/cpu/online", "0-1\n")
    caches = ((1, "Data", "32K", "0"), (1, "Instruction", "64K", "0"), (3, "Unified", "8M", "0-7"))
    for index, (level, kind, size, shared) in enumerate(caches):
        folder = f"sys/devices/system/cpu/cpu0/cache/index{index}"
        computer.write(f"{folder}/level", f"{level}\n")
        computer.write(f"{folder}/type", f"{kind}\n")
        computer.write(f"{folder}/size", f"{size}\n")
        computer.write(f"{folder}/shared_cpu_list", f"{shared}\n")
    return computer
