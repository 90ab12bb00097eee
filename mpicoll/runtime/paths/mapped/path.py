"""The path mapped: a plan bound to one kernel over the peers' inboxes, launched and left alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from mpicoll.dispatch.plan import Plan
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.cuda import kernels
from mpicoll.runtime.cuda.launch import plain_launch
from mpicoll.runtime.cuda.order import Handover
from mpicoll.runtime.cuda.streams import is_captured, mark
from mpicoll.runtime.paths.base import Path
from mpicoll.runtime.paths.mapped import watchdog
from mpicoll.runtime.paths.mapped.enqueued import EnqueuedCall
from mpicoll.runtime.paths.mapped.exchange import connect_channels
from mpicoll.runtime.paths.mapped.inbox_layout import least_bytes
from mpicoll.runtime.paths.mapped.inboxes import Peers, connect
from mpicoll.runtime.paths.mapped.items import Items
from mpicoll.runtime.paths.mapped.kernel import Kernel, is_in_place, kernel_of, packed_argument
from mpicoll.runtime.paths.mapped.launch import call_launcher, mobile_launcher
from mpicoll.runtime.paths.mapped.protocols import piece_for, wants_more
from mpicoll.runtime.paths.mapped.residents import residents_of
from mpicoll.runtime.program.bound import LAUNCH, ORDER, SYNC, Bound
from mpicoll.runtime.program.local_work import Action
from mpicoll.runtime.progress.exchange import Routine
from mpicoll.settings import format_bytes, settings

_runtime = cupy.cuda.runtime

#: bytes of inboxes that a communicator has at first
FIRST = 16 << 20


class MappedPath(Path):
    """One kernel for a call, in which every rank writes into its peers' inboxes."""

    name = "mapped"
    captures = True
    ordered = True
    mobile = True
    fuses = True

    def unoffered(self, context: Context, operands: Operands) -> str:
        """Return why a call cannot be a kernel, "" if it can."""
        if operands.op is not None and not kernels.serves(operands.op, operands.dtype):
            return "the operator is a Python function without a CUDA expression"
        found = context.attached.get(self.name, f"path={settings.path!r} is set")
        return found if isinstance(found, str) else ""

    def remark(self, context: Context) -> str:
        """Return what it takes of each GPU's memory, and a warning where the GPUs are not linked by NVLink."""
        peers = _peers(context)
        larger = peers.larger.layout.nbytes if isinstance(peers.larger, Peers) else 0
        memory = f"; inboxes of {format_bytes(peers.layout.nbytes + larger)} on each GPU"
        return memory if peers.linked else f"{memory}; the GPUs are not linked by NVLink"

    def is_prepared(self, context: Context) -> bool:
        """Tell whether the peers' memory is mapped, cannot be, or is not wanted."""
        return self.name in context.attached or settings.path not in (None, self.name)

    def prepare(self, context: Context, device: int) -> Routine[None]:
        """Map the peers' memory, if it can be."""
        if context.size == 1 or not settings.mapped_bytes:
            context.attached[self.name] = "there is one rank" if context.size == 1 else "mapped_bytes is 0"
            return
        nbytes = min(max(FIRST, least_bytes(context.size)), settings.mapped_bytes)
        context.attached[self.name] = yield from connect(context.comm, device, nbytes, bool(settings.mapped_shared))

    def needs_no_copy(self, plan: Plan, operands: Operands, context: Context) -> bool:
        """Tell whether each thread has read what is in the place of an element before it writes that."""
        return is_in_place(plan, operands, context, _peers(context))

    def lacks(self, context: Context, plan: Plan) -> bool:
        """Tell whether this is the first call that could use more memory than there is mapped."""
        peers = _peers(context)
        return peers.larger is None and settings.mapped_bytes > peers.layout.nbytes and wants_more(plan, peers)

    def provide(self, context: Context, plan: Plan) -> Routine[None]:
        """Map more memory for the first call that can use it.

        Programs and graphs of short calls stay as they are.  Those of long ones, such as captured calls, are bound
        anew from now on, or one rank would write into other inboxes than another one reads.
        """
        peers = _peers(context)
        if self.lacks(context, plan):
            most, shared = settings.mapped_bytes, bool(settings.mapped_shared)
            peers.larger = yield from connect(context.comm, peers.device, most, shared, peers)
            context.cache.drop_programs(lambda plan: plan.path == self.name and wants_more(plan, peers))

    def channels(self, context: Context) -> Routine[Any]:
        """Map memory for the messages of groups, beside the inboxes."""
        inboxes = context.attached.get(self.name, f"path={settings.path!r} is set")
        return inboxes if isinstance(inboxes, str) else (yield from connect_channels(context, inboxes))

    def home(self, context: Context) -> int:
        """Return the device of the inboxes, -1 if there are none."""
        peers = context.attached.get(self.name)
        return -1 if peers is None or isinstance(peers, str) else int(peers.device)

    def side(self, context: Context, operands: Operands, slot: Slot) -> Any:
        """Return the stream of all calls that do not block."""
        return _peers(context).side

    def bind(
        self,
        bound: Bound,
        plan: Plan,
        operands: Operands,
        context: Context,
        stream: int,
        slot: Slot,
        then: list[Action],
    ) -> None:
        """Append the launch of a call's kernel, in the communicator's order; arguments as in `Path.bind`.

        Raises:
            UnsupportedError: the schedule sends too many blocks from rank to rank for the inboxes.
        """
        peers = piece_for(plan, _peers(context))
        captured = is_captured(stream)
        add_launch(bound, kernel_of(plan, operands, context, peers), operands.bases, peers, context, stream)
        bound.add(LAUNCH, *then)
        bound.last_start = len(bound.actions) - 1
        bound.limited = bool(settings.errors) and not captured  # what is captured does not run now
        if not captured:
            bound.mark = lambda: mark(stream)

    def items(self, plan: Plan, calls: Sequence[Operands], places: np.ndarray, context: Context, stream: int) -> Items:
        """Return calls that are alike as one launch; arguments as in `Path.items`."""
        return Items(plan, calls, places, context, piece_for(plan, _peers(context)), stream)

    def enqueued(self, bound: Bound, context: Context, caller: int, keep: object) -> EnqueuedCall:
        """Return a call that does not block, all of it enqueued on the side stream; arguments as in `Path.queued`."""
        return EnqueuedCall(context, bound, _peers(context).hand, caller, keep)

    def handed_over(self, bound: Bound, handover: Handover, context: Context) -> Bound:
        """Return a program on the side stream, after what is on the caller's stream; it ends when its kernel does."""
        side = handover.side
        whole = Bound(name=bound.name, device=bound.device, keep=bound)
        whole.add(ORDER, lambda: _runtime.streamWaitEvent(side, handover.begin.ptr))
        whole.add(LAUNCH, *(action for action, poll in zip(bound.actions, bound.polls, strict=True) if poll is None))
        whole.last_start = len(whole.actions) - 1
        whole.add(ORDER, lambda: _runtime.eventRecord(handover.end.ptr, side))
        add_wait(whole, context, handover.end.ptr)
        return whole


def add_launch(
    bound: Bound, kernel: Kernel, bases: dict[str, int], peers: Peers, context: Context, stream: int
) -> None:
    """Append the launch of a kernel, in the communicator's order.

    Args:
        bound: the program; one that is mobile is aimed by its kernel's argument.
        kernel: what is launched.
        bases: addresses at which "input", "output" and "scratch" start.
        peers: the mapping that it uses.
        context: the communicator's.
        stream: address of the stream.
    """
    owner, captured = cupy.cuda.get_current_stream(), is_captured(stream)
    if settings.timeout > 0:
        look = watchdog.look_of(context, peers, settings.timeout)
        bound.add(ORDER, None if captured else look)
    packed = packed_argument([bases[buffer] + start for buffer, start in kernel.memory], kernel.rest)
    plain = plain_launch(kernel.function, packed, kernel.grid, peers.device, kernel.module)
    most, order, residents = kernel.grid[0], peers.order, residents_of(peers.device)
    if bound.mobile:
        room = None if captured else residents
        launch, bound.aim = mobile_launcher(plain, most, packed, kernel.memory, stream, order, room, owner)
    else:
        launch = call_launcher(plain, most, stream, peers.device, order, residents, owner)
    bound.add(LAUNCH, launch)


def _peers(context: Context) -> Peers:
    """Return a communicator's mapping of its peers' memory, which there is where this path is taken."""
    peers = context.attached[MappedPath.name]
    assert isinstance(peers, Peers)
    return peers


def add_wait(bound: Bound, context: Context, event: int) -> None:
    """Append the wait for the kernel's end; raises StalledError if it has waited for a peer in vain."""

    def ended() -> bool:
        return bool(_runtime.eventQuery(event) == 0)

    def end() -> None:
        _runtime.eventSynchronize(event)
        context.look()

    bound.add(SYNC, end, poll=ended)
