"""The messages of a group, launched as one kernel; the memory that its channels need, mapped once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy

from mpicoll.runtime.context.context import Context
from mpicoll.runtime.cuda import kernels
from mpicoll.runtime.cuda.launch import plain_launch
from mpicoll.runtime.cuda.streams import is_captured, on_device
from mpicoll.runtime.paths.mapped import watchdog
from mpicoll.runtime.paths.mapped.channels import (
    Transfer,
    argument,
    capacity_for,
    channel_source,
    grid_for,
    layout_of,
    protocol_of,
)
from mpicoll.runtime.paths.mapped.inbox_layout import least_bytes
from mpicoll.runtime.paths.mapped.inboxes import Peers, connect
from mpicoll.runtime.paths.mapped.residents import residents_of
from mpicoll.runtime.program.local_work import Action
from mpicoll.runtime.progress.exchange import Routine
from mpicoll.settings import settings


class Channels:
    """A communicator's channels between all ranks.

    Attributes:
        device: whose arrays travel through them.
    """

    def __init__(self, context: Context, peers: Peers) -> None:
        """Use memory that is mapped, and nothing else has."""
        self.device, self._context, self._peers = peers.device, context, peers
        self._protocol = protocol_of(peers.linked)
        self._layout = layout_of(context.size, self._protocol)

    def prepared(self, transfers: Sequence[Transfer]) -> Action:
        """Return an action that launches the kernel of a group's messages, after the communicator's earlier calls.

        The stream is the current one of now.

        Args:
            transfers: the messages, those of a channel in the order on which both ends agree.
        """
        owner, peers, limit = cupy.cuda.get_current_stream(self.device), self._peers, settings.timeout
        stream, order, residents = owner.ptr, peers.order, residents_of(self.device)
        packed = argument(transfers, self._layout, peers.pieces, peers.rank, peers.host, self._protocol, limit)
        source = channel_source(self._protocol, self._context.size, capacity_for(len(transfers)))
        with on_device(self.device):
            function, module = kernels.compiled(source, "channels", self.device)
        blocks, threads = grid_for(transfers, self._protocol)
        least = -(-len(transfers) * 32 // threads)  # so that each message has a warp
        plain = plain_launch(function, packed, (blocks, threads), self.device, module)
        look = watchdog.look_of(self._context, peers, limit) if limit > 0 else None

        def launch() -> None:
            if order.stream != stream:
                order.switch(stream, owner)
            if is_captured(stream):  # then no other stream is asked
                plain(stream)
                return
            if look is not None:
                look()
            room = residents.blocks
            if residents.stream != stream or blocks > room:
                room = residents.switch(stream, owner)
            plain(stream, min(blocks, max(room, least)))

        return launch

    def abort(self) -> None:
        """Make kernels that wait for a peer leave."""
        self._peers.abort()

    def synchronize(self) -> None:
        """Do nothing: the order of the kernels is that of the communicator's calls, which are waited for."""

    def close(self, meet: Callable[[], object]) -> None:
        """Unmap and free; collective, as `Peers.close`."""
        self._peers.close(meet)


def connect_channels(context: Context, first: Any) -> Routine[Channels | str]:
    """Map the memory of all ranks' channels; a routine of all of them.

    Args:
        context: the communicator's.
        first: its inboxes.

    Returns:
        The channels, or in words why there are none.
    """
    nbytes = max(layout_of(context.size, protocol_of(first.linked)).nbytes, least_bytes(context.size))
    found = yield from connect(context.comm, first.device, nbytes, bool(settings.mapped_shared), first)
    return found if isinstance(found, str) else Channels(context, found)
