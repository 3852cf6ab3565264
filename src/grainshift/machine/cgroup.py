"""Finds the control groups that limit us (v1, v2 and mixed) and their limits. Knows no sensor."""

from dataclasses import dataclass
from pathlib import Path

from grainshift.machine.files import read_number, read_text


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """One group that can limit memory: its files, in the names of its version."""

    limits: tuple[Path, ...]
    used: Path
    stat: Path
    reclaimable: bytes


@dataclass(frozen=True, slots=True)
class Groups:
    """The folders of our groups, our own first, then each one above it."""

    unified: tuple[Path, ...] = ()
    cpu_v1: tuple[Path, ...] = ()
    memory_v1: tuple[Path, ...] = ()

    @property
    def memory(self) -> tuple[MemoryGroup, ...]:
        """Every group whose memory limit holds for us."""
        new = (_memory_v2(folder) for folder in self.unified if (folder / "memory.max").exists())
        return (*new, *map(_memory_v1, self.memory_v1))


def find_groups(proc: Path, sys: Path) -> Groups:
    """Our groups, from /proc/self/cgroup and what is mounted under /sys/fs/cgroup."""
    root = sys / "fs" / "cgroup"
    unified: tuple[Path, ...] = ()
    cpu: tuple[Path, ...] = ()
    memory: tuple[Path, ...] = ()
    for line in read_text(proc / "self" / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mounts = [m for m in (root, root / "unified") if (m / "cgroup.controllers").exists()]
            unified = _upwards(mounts[0], path) if mounts else ()
        elif "cpu" in controllers.split(","):
            cpu = _upwards(_mount_v1(root, controllers), path)
        elif "memory" in controllers.split(","):
            memory = _upwards(_mount_v1(root, controllers), path)
    return Groups(unified, cpu, memory)


def quota_cores(groups: Groups) -> float | None:
    """The fewest cores' worth of time that any of our groups allows; None without a quota."""
    quotas = [_quota_v2(read_text(folder / "cpu.max")) for folder in groups.unified]
    quotas += [_quota_v1(folder) for folder in groups.cpu_v1]
    return min((quota for quota in quotas if quota is not None), default=None)


def memory_limit_bytes(groups: Groups) -> int | None:
    """The lowest memory limit of any of our groups; None without one."""
    limits = [read_number(path) for group in groups.memory for path in group.limits]
    return min((limit for limit in limits if limit is not None), default=None)


def _upwards(mount: Path, path: str) -> tuple[Path, ...]:
    """The folders of a group and of all above it that are there.

    A container without a namespace of its own is told a path of its host that it cannot see, while
    its group is what is mounted: so the mount itself always counts, and missing folders do not.
    """
    parts = [part for part in path.split("/") if part not in ("", "..")]
    steps = [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return tuple(step for step in steps if step.is_dir())


def _mount_v1(root: Path, controllers: str) -> Path:
    names = (controllers, *controllers.split(","))
    return next((root / name for name in names if (root / name).is_dir()), root / controllers)


def _quota_v2(text: str) -> float | None:
    quota, _, period = text.partition(" ")
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) / int(period)


def _quota_v1(folder: Path) -> float | None:
    quota = read_number(folder / "cpu.cfs_quota_us")
    period = read_number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period else None


def _memory_v2(folder: Path) -> MemoryGroup:
    limits = (folder / "memory.max", folder / "memory.high")
    return MemoryGroup(
        limits, folder / "memory.current", folder / "memory.stat", b"\ninactive_file "
    )


def _memory_v1(folder: Path) -> MemoryGroup:
    return MemoryGroup(
        (folder / "memory.limit_in_bytes",),
        folder / "memory.usage_in_bytes",
        folder / "memory.stat",
        b"\ntotal_inactive_file ",
    )
