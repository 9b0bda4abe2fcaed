"""One class for each kind, with what belongs to it."""

from __future__ import annotations

import copy
import pickle

import pytest

import ticketing
from ticketing import _errors, _ticketing


def test_each_kind_has_its_class() -> None:
    kinds = {kind: getattr(ticketing, name) for kind, name in _ticketing.KINDS}
    assert {cls.kind for cls in kinds.values()} == set(kinds)
    for kind, cls in kinds.items():
        assert cls.kind == kind
        assert issubclass(cls, ticketing.TicketError)
        assert _errors.CLASSES[cls.__name__] is cls
    public = {name for name in ticketing.__all__ if name.startswith("Ticket")}
    classes = {name for _, name in _ticketing.KINDS} | {"TicketForked"}
    assert public - {"Ticket", "TicketBroker", "TicketError"} == classes == set(_errors.CLASSES)


@pytest.mark.parametrize("name", sorted(_errors.CLASSES))
def test_errors_cross_processes(name: str) -> None:
    cls = getattr(ticketing, name)
    error = cls("what happened", key="k", owner=2**64 - 1, token=2**53 + 1)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is cls
        assert str(other) == "what happened"
        assert (other.kind, other.key, other.owner, other.token) == (cls.kind, "k", 2**64 - 1, 2**53 + 1)
    assert cls.__module__ == "ticketing"


def test_an_error_from_elsewhere_cannot_be_verified() -> None:
    error = ticketing.TicketIndeterminate("lost", key="k", owner=1)
    with pytest.raises(ticketing.TicketInvalidInput, match="in the process in which it came up"):
        error.verify_sync()


def test_what_belongs_to_a_process_is_not_pickled(broker: ticketing.TicketBroker, key: str) -> None:
    with broker.lock(key) as ticket:
        for thing in (ticket, broker):
            with pytest.raises(TypeError, match="cannot be pickled"):
                pickle.dumps(thing)
