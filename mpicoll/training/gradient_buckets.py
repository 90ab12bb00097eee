"""`GradientBuckets`: gradients are averaged over the ranks while the rest of the backward pass is computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

from mpi4py import MPI

from mpicoll.functional import communicator
from mpicoll.runtime.arguments.operators import AVG
from mpicoll.runtime.progress.turns import advance_all, in_flight
from mpicoll.training.added import NAME, Added, added
from mpicoll.training.bucket import Bucket
from mpicoll.training.bucket_layout import BucketLayout
from mpicoll.training.same_order import check_same


class GradientBuckets:
    """Reduces many arrays over the ranks in place, in buckets, while more of them are computed.

        buckets = mpicoll.GradientBuckets(comm)
        for batch in batches:
            with buckets:                      # a step; finish() at its end
                for layer in reversed(layers):
                    buckets.add(layer.backward(...))

    Each array is added when it is ready on the current stream.  As soon as a bucket is full, its arrays are packed
    and `Iallreduce` is started; `finish` waits for all buckets and puts the results into the arrays.  On a device
    both are enqueued, and the host does not wait.  On the host each `add` makes progress on what was started.

    All ranks add arrays of the same sizes and dtypes in the same order, which is compared in the first step, and in
    all steps.  A bucket has one dtype, and memory of its own, which stays; an array of `bucket_bytes` or more is not
    packed.  Other calls on the communicator must not come between `add`s on some ranks only.

    For PyTorch, `watch(model)` adds each gradient when `backward` has it.

    Args:
        comm: the ranks; any intracommunicator, None for COMM_WORLD.
        bucket_bytes: size at which a bucket is reduced, in bytes.
        op: operator; mpicoll.AVG is the average.

    Raises:
        ValueError: bucket_bytes is not positive.
    """

    def __init__(
        self, comm: MPI.Intracomm | None = None, *, bucket_bytes: int = 25 << 20, op: MPI.Op | Any = AVG
    ) -> None:
        if bucket_bytes <= 0:
            raise ValueError(f"{NAME}: bucket_bytes is {bucket_bytes}, not positive")
        self._comm = communicator(comm)
        self._op, self._layout = op, BucketLayout(bucket_bytes)
        self._buckets: list[Bucket] = []
        self._bucket_of: dict[int, int] = {}
        self._added: dict[int, Added] = {}
        self._names: list[str] | None = None
        self._fixed = self._paused = False
        self._begin()

    def _begin(self) -> None:
        """Begin a step: no array is ready, and no bucket started."""
        self._ready: dict[int, Any] = {}
        self._added = {number: one for number, one in self._added.items() if one.array is not None}
        self._left = [len(bucket.numbers) for bucket in self._buckets]
        self._started = 0

    def add(self, array: Any) -> None:
        """Add the next array of this step, which is ready on the current stream (PyTorch's, for a tensor).

        The array must stay as it is until `finish`.

        Raises:
            MismatchError: in the first step, another rank has added another array.
            RuntimeError: `watch` adds the arrays.
            TypeError: not an array.
            ValueError: another array than in the first step, or one that cannot be written.
        """
        if self._names is not None:
            raise RuntimeError(f"{NAME}: the gradients of a model are watched, and added by backward()")
        self._put(len(self._ready), array)

    def finish(self) -> None:
        """End a step: wait for all reductions; the results are in the arrays, for work on the current stream.

        Raises:
            MismatchError: in the first step, another rank has added more arrays.
            RuntimeError: fewer arrays than in the first step are ready.
        """
        if not self._fixed:
            for numbers in self._layout.close():
                self._open(numbers)
                self._start_those_full()
            check_same(self._comm, {})
            self._fixed = bool(self._layout.members)
        if len(self._ready) < len(self._layout.members):
            missing = next(n for n in range(len(self._layout.members)) if n not in self._ready)
            self._refuse(RuntimeError(f"{NAME}: {self._name(missing)} was not added in this step"))
        try:
            for bucket in self._buckets:
                bucket.end()
        except BaseException:
            self._leave()
            raise
        self._begin()

    def _leave(self) -> None:
        """Leave a step as it is; the next one has new memory, and after the first one's failure another layout."""
        for bucket in self._buckets:
            bucket.abandon()
        if not self._fixed:
            self._layout, self._buckets, self._bucket_of = BucketLayout(self._layout.limit), [], {}
        self._begin()

    def watch(self, model: Any) -> None:
        """Add the gradients of a PyTorch model's parameters as `backward` has them; collective; torch 2.1 or newer.

        Buckets are made of the parameters in reversed order, so that their reductions start in the same order on all
        ranks, whatever the order in which gradients become ready.  Call `finish` after `backward`, before the
        optimizer's step.  Parameters must be the same on all ranks from the start, such as by `Bcast`.

        Raises:
            MismatchError: another rank has other parameters.
            RuntimeError: arrays were added before.
        """
        if self._fixed or self._ready:
            raise RuntimeError(f"{NAME}: arrays were added before watch()")
        named = [(name, one) for name, one in model.named_parameters() if one.requires_grad][::-1]
        self._names = [name for name, _ in named]
        closed = [self._layout.add(added(name, one.detach()).member) for name, one in named]
        check_same(self._comm, dict(enumerate(self._layout.members)))
        for numbers in (*filter(None, closed), *self._layout.close()):
            self._open(numbers)
        self._fixed = True
        self._begin()
        for number, (_, parameter) in enumerate(named):
            parameter.register_post_accumulate_grad_hook(partial(self._hook, number))

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let `backward` accumulate gradients on this rank, and reduce none, within a with block."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def __enter__(self) -> GradientBuckets:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._leave()
            return
        try:
            self.finish()
        except BaseException:
            self._leave()
            raise

    def _hook(self, number: int, parameter: Any) -> None:
        if not self._paused:
            self._put(number, parameter.grad)

    def _put(self, number: int, value: Any) -> None:
        """Note that an array is ready, and start what can be started."""
        if number in self._ready:
            raise RuntimeError(
                f"{NAME}: {self._name(number)} is ready a second time in a step: call finish() after each backward(), "
                "or accumulate with no_sync()"
            )
        known = self._added.get(number)
        if known is None or known.array is None or known.array() is not value:
            known = self._added[number] = self._read(number, value)
        self._ready[number] = value
        if not self._fixed:
            if numbers := self._layout.add(known.member):
                self._open(numbers)
                self._start_those_full()
        else:
            bucket = self._bucket_of[number]
            self._left[bucket] -= 1
            if not self._left[bucket]:
                self._start_those_full()
        if in_flight:
            advance_all()

    def _read(self, number: int, value: Any) -> Added:
        """Return where an array is; refuse one that is not as in the first step."""
        members = self._layout.members
        try:
            found = added(self._name(number), value)
            if not self._fixed:
                return found
            if number >= len(members):
                raise ValueError(f"{NAME}: {self._name(number)} is one more than in the first step")
            if found.member != members[number]:
                was = f"but was {members[number]} in the first step"
                raise ValueError(f"{NAME}: {self._name(number)} is {found.member}, {was}")
        except (TypeError, ValueError) as error:
            self._refuse(error)
        return found

    def _open(self, numbers: tuple[int, ...]) -> None:
        """Make a bucket of arrays, of which all are ready but in `watch`."""
        members = [self._layout.members[n] for n in numbers]
        if not self._fixed and self._names is None:
            check_same(self._comm, dict(zip(numbers, members, strict=True)))
        self._bucket_of.update(dict.fromkeys(numbers, len(self._buckets)))
        self._buckets.append(Bucket(numbers, members))
        self._left.append(0)

    def _start_those_full(self) -> None:
        """Start the reductions of buckets whose arrays are all ready, in the order of the buckets."""
        while self._started < len(self._buckets) and not self._left[self._started]:
            bucket = self._buckets[self._started]
            values, added = ([of[n] for n in bucket.numbers] for of in (self._ready, self._added))
            bucket.start(self._comm, self._op, values, added)
            self._started += 1

    def _name(self, number: int) -> str:
        return f"array {number}" if self._names is None else f"the gradient of {self._names[number]}"

    def _refuse(self, error: Exception) -> NoReturn:
        """Raise an error, and tell the other ranks where a setting demands it."""
        self._comm._tell(NAME, error)
