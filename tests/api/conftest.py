import weakref
from collections.abc import Iterator

import pytest
import torch

from grainshift.api.session import Session


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Small products on several threads wait for one another when the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def ended_sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End every session that a test leaves behind, so that none takes time from the next."""
    made: list[weakref.ref[Session]] = []
    begin = Session.__init__

    def begin_and_note(self: Session, *args: object, **kwargs: object) -> None:
        made.append(weakref.ref(self))
        begin(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "__init__", begin_and_note)
    yield
    for known in made:
        session = known()
        if session is not None and "_end" in vars(session):
            session.close()
