"""What the driver says of memory, made up: which can be mapped by peers?"""

import pytest

from mpicoll.runtime.cuda import ipc
from mpicoll.runtime.cuda.ipc import EXPORTABLE, MANAGED, can_be_mapped

HERE = 0x7F0000000000


@pytest.mark.parametrize(
    ("attributes", "can"),
    [
        ({EXPORTABLE: 1, MANAGED: 0}, True),  # cudaMalloc
        ({EXPORTABLE: 0, MANAGED: 0}, False),  # cudaMallocAsync, and what is mapped piece by piece
        ({EXPORTABLE: 0, MANAGED: 1}, False),  # managed
        ({EXPORTABLE: 1, MANAGED: 1}, False),
        ({}, False),  # no memory of CUDA's: it can be copied if the device reaches it, but not mapped
    ],
)
def test_what_the_driver_says(attributes, can):
    assert can_be_mapped(HERE, lambda address, attribute: attributes.get(attribute)) is can


def test_an_empty_array_is_not_asked_for():
    assert can_be_mapped(0, lambda address, attribute: pytest.fail("asked"))


class Driver:
    """Answers in one byte, as for a bool, or with an error."""

    def __init__(self, failed, answer):
        self.failed, self.answer = failed, answer

    def cuPointerGetAttribute(self, where, attribute, address):
        assert (attribute, address) in {(EXPORTABLE, HERE), (MANAGED, HERE)}
        if not self.failed:
            where._obj.value = self.answer[attribute]
        return self.failed


@pytest.mark.parametrize(
    ("driver", "can"),
    [
        (Driver(0, {EXPORTABLE: 1, MANAGED: 0}), True),
        (Driver(0, {EXPORTABLE: 0, MANAGED: 0}), False),
        (Driver(1, {}), False),
    ],
)
def test_how_the_driver_is_asked(monkeypatch, driver, can):
    monkeypatch.setattr(ipc, "_query", lambda: driver.cuPointerGetAttribute)
    assert can_be_mapped(HERE) is can
