"""Signatures: those of other forms are the blocking ones', and all are mpi4py's with our keywords."""

import inspect
import typing

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.blocking import Blocking
from mpicoll.nonblocking import Nonblocking
from mpicoll.persistent import Persistent
from mpicoll.request import PersistentRequest, Request

METHODS = [name for name in vars(Blocking) if name[0].isupper()]
KEYWORDS = ["algorithm", "stream"]
SIZE = MPI.COMM_WORLD.size
#: form, its name of a method, its class, and what it returns
FORMS = {
    "blocking": (str, Blocking, type(None)),
    "nonblocking": (lambda method: f"I{method.lower()}", Nonblocking, Request),
    "persistent": (lambda method: f"{method}_init", Persistent, PersistentRequest),
}


def test_there_are_sixteen_of_each_form():
    for name_of, owner, _ in FORMS.values():
        assert {name for name in vars(owner) if name[0].isupper()} == {name_of(method) for method in METHODS}
    assert len(METHODS) == 16


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", FORMS)
def test_signatures_are_mpi4pys_and_our_keywords(method, form):
    name_of, owner, result = FORMS[form]
    name = name_of(method)
    ours = getattr(mpicoll.Communicator, name)
    signature = inspect.signature(ours)
    theirs = inspect.signature(getattr(MPI.Intracomm, name)).parameters.values()
    parameters = list(signature.parameters.values())
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [(p.name, p.default) for p in positional] == [(p.name, p.default) for p in theirs]
    keywords = KEYWORDS[:1] if method == "Barrier" else KEYWORDS
    rest = [(p.name, p.kind, p.default) for p in parameters[len(positional) :]]
    assert rest == [(keyword, inspect.Parameter.KEYWORD_ONLY, None) for keyword in keywords]
    hints = typing.get_type_hints(ours)
    assert hints["return"] is result
    assert set(hints) == set(signature.parameters) - {"self"} | {"return"}
    assert (ours.__name__, ours.__qualname__, ours.__module__) == (name, f"{owner.__name__}.{name}", owner.__module__)


@pytest.mark.parametrize("method", METHODS)
def test_documentation_of_the_arguments_is_in_every_form(method):
    documentation = inspect.getdoc(getattr(Blocking, method))
    started = inspect.getdoc(getattr(Nonblocking, f"I{method.lower()}"))
    assert started == f"Start a nonblocking {method}.\n\n{documentation}"
    prepared = inspect.getdoc(getattr(Persistent, f"{method}_init"))
    assert prepared == f"Make a persistent {method}; info is not used.\n\n{documentation}"


@pytest.mark.parametrize("name", ["Allreduce", "Iallreduce", "Allreduce_init"])
def test_a_wrong_argument_is_told_of_the_method_that_was_called(world, name):
    method, x = getattr(world, name), np.ones(SIZE)
    for wrong, named in (((x,), {}), ((x, x, MPI.SUM, MPI.INFO_NULL, 0), {}), ((x, x), {"count": 1})):
        with pytest.raises(TypeError, match=rf"\b{name}\(\) "):
            method(*wrong, **named)
    with pytest.raises(TypeError, match=r"Allreduce_init\(\) multiple values for argument 'info'"):
        world.Allreduce_init(x, x, MPI.SUM, MPI.INFO_NULL, info=MPI.INFO_NULL)


@pytest.mark.parametrize("info", [((), {}), ((MPI.SUM, MPI.INFO_NULL), {}), ((), {"info": MPI.INFO_NULL})])
def test_info_is_taken_by_its_place_and_by_its_name(world, info):
    x, y = np.ones(3), np.zeros(3)
    arguments, named = info
    request = world.Allreduce_init(x, y, *arguments, algorithm="linear", **named)
    request.Start()
    request.Wait()
    assert (y == world.size).all()
    assert request.plan.algorithm == "linear"
    request.Free()


def test_a_method_that_makes_a_communicator_is_mpi4pys(world):
    made = "Dup Dup_with_info Idup Idup_with_info Clone Split Split_type Create Create_group Create_cart Create_graph"
    for name in made.split():
        ours, theirs = getattr(mpicoll.Communicator, name), getattr(MPI.Intracomm, name)
        assert inspect.signature(ours) == inspect.signature(theirs)
        assert ours.__doc__.split(";")[1].startswith(" as mpi4py's, but of mpicoll's type.")
        with pytest.raises(TypeError, match=rf"\b{name}\(\)"):
            getattr(world, name)(1, 2, 3, 4)
