from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from grainshift.families.recurrence import Recurrence
from grainshift.families.recurrence.swift import native as door_of
from grainshift.runtime.native import find_compiler


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Small products on several threads wait for one another when the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Recurrence:
    """The family with its kernels built."""
    if find_compiler() is None:
        pytest.fail("the tests need a C++ compiler: g++ or clang++")
    family = Recurrence(kernels=Path(tmp_path_factory.mktemp("kernels")))
    assert family.native is not None
    family.native.build()
    return family


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Recurrence:
    """The family with its kernels, and its door in C++, built."""
    folder = Path(tmp_path_factory.mktemp("swift"))
    family = Recurrence(kernels=folder)
    assert family.native is not None
    family.native.build()
    if door_of(folder).build() is None:
        pytest.fail("the door could not be built; the tests need PyTorch's and Python's headers")
    return family


@pytest.fixture(params=["operators", "kernels", "swift"])
def family(request: pytest.FixtureRequest) -> Recurrence:
    """The family without a compiler, with one, and with one that knows PyTorch's headers."""
    if request.param == "operators":
        return Recurrence()
    with_kernels: Recurrence = request.getfixturevalue(request.param)
    return with_kernels
