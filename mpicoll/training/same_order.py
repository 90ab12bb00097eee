"""The comparison of what the ranks add, in the first step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpicoll.communicator import Communicator
from mpicoll.errors import MismatchError
from mpicoll.runtime.call.agreement import Word
from mpicoll.runtime.call.conductor import tell
from mpicoll.training.added import NAME
from mpicoll.training.bucket_layout import Member


def check_same(comm: Communicator, members: Mapping[int, Member]) -> None:
    """Compare the arrays of a bucket over the ranks; collective.

    Args:
        comm: the ranks.
        members: the arrays by their numbers, none at the end of the step.

    Raises:
        MismatchError: they are not the same on all ranks.
    """
    texts = {number: str(member) for number, member in members.items()}
    told = [word.told for word in tell(comm._get_context(), Word(NAME, told=texts), None)]
    if any(other != told[0] for other in told):
        raise MismatchError(f"{NAME}: {difference(told)}")


def difference(told: Sequence[Mapping[int, str]]) -> str:
    """Return the first rank that differs from rank 0, and the first array in which it does.

    Args:
        told: what each rank has said of its arrays, by their numbers; not all the same.
    """
    rank = next(rank for rank, other in enumerate(told) if other != told[0])
    numbers = sorted({*told[0], *told[rank]})
    number = next(n for n in numbers if told[0].get(n) != told[rank].get(n))
    here, there = (told[r].get(number, "not in this bucket") for r in (0, rank))
    return f"array {number} is {here} on rank 0, but {there} on rank {rank}"
