from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from grainshift.families.recurrence import Recurrence
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


@pytest.fixture(params=["operators", "kernels"])
def family(request: pytest.FixtureRequest) -> Recurrence:
    """The family as it is without a compiler, and with one."""
    with_kernels: Recurrence = request.getfixturevalue("kernels")
    return with_kernels if request.param == "kernels" else Recurrence()
