"""Ways of a message to the right neighbour and from the left one, by each method that there is."""

from mpi4py import MPI

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE
TAG = 7


def waited(start):
    """Return what sends and receives by requests, all of them waited for."""

    def exchange(c, x, y):
        for request in start(c, x, y):
            assert isinstance(request, MPI.Request) and request.Wait.__module__ != MPI.__name__
            request.Wait()

    return exchange


def by_testing(start):
    def exchange(c, x, y):
        requests = start(c, x, y)
        while not all([request.Test() for request in requests]):
            pass

    return exchange


def both(send, receive):
    """Return an exchange in which even ranks send first, so that nobody waits for nobody."""

    def exchange(c, x, y):
        receiving = c.Irecv(y, LEFT, TAG) if receive is None else None
        if RANK % 2 == 0 or receiving:
            send(c, x)
        if receive is None:
            return receiving.Wait()
        receive(c, y)
        return None if RANK % 2 == 0 else send(c, x)

    return exchange


def probed(name):
    def receive(c, y):
        status = MPI.Status()
        message = getattr(c, name)(LEFT, TAG, status)
        assert (status.Get_source(), status.Get_tag(), status.Get_count(MPI.DOUBLE)) == (LEFT, TAG, len(y))
        if name == "Probe":
            assert message is True
            return c.Recv(y, LEFT, TAG)
        return message.Recv(y)

    return receive


def received(c, y):
    status = MPI.Status()
    assert c.Recv(y, LEFT, TAG, status) is None
    assert (status.Get_source(), status.Get_tag(), status.Get_count(MPI.DOUBLE)) == (LEFT, TAG, len(y))


def replaced(c, x, y):
    y[:] = x
    c.Sendrecv_replace(y, RIGHT, TAG, LEFT, TAG)


#: how a buffer goes to the right and comes from the left
BUFFERS = {
    "Send, Recv": both(lambda c, x: c.Send(x, RIGHT, TAG), received),
    "Ssend, Recv": both(lambda c, x: c.Ssend(x, RIGHT, tag=TAG), lambda c, y: c.Recv(y)),
    "Ssend, Irecv": both(lambda c, x: c.Send([x, len(x)], dest=RIGHT, tag=TAG), None),
    "Send, Probe": both(lambda c, x: c.Send([x, MPI.DOUBLE], RIGHT, TAG), probed("Probe")),
    "Send, Mprobe": both(lambda c, x: c.Send(x, RIGHT, TAG), probed("Mprobe")),
    "Sendrecv": lambda c, x, y: c.Sendrecv(x, RIGHT, TAG, y, LEFT, TAG),
    "Sendrecv by name": lambda c, x, y: c.Sendrecv(sendbuf=x, dest=RIGHT, recvbuf=y, source=LEFT),
    "Sendrecv_replace": replaced,
    "Wait": waited(lambda c, x, y: [c.Isend(x, RIGHT, TAG), c.Irecv(y, LEFT, TAG)]),
    "Wait for what is synchronous": waited(lambda c, x, y: [c.Irecv(y), c.Issend(x, RIGHT)]),
    "Wait for both in one": waited(lambda c, x, y: [c.Isendrecv(x, RIGHT, TAG, y, LEFT, TAG)]),
    "Test": by_testing(lambda c, x, y: [c.Isend(x, RIGHT, TAG), c.Irecv(y, LEFT, TAG)]),
    "MPI's Waitall": lambda c, x, y: MPI.Request.Waitall([c.Isend(x, RIGHT, TAG), c.Irecv(y, LEFT, TAG)]),
}


def object_received(c):
    status = MPI.Status()
    found = c.recv(source=LEFT, tag=TAG, status=status)
    assert (status.Get_source(), status.Get_tag()) == (LEFT, TAG)
    return found


def taken(name):
    def receive(c):
        message = getattr(c, name)(LEFT, TAG)
        return c.recv(source=LEFT, tag=TAG) if name == "probe" else message.recv()

    return receive


def in_turn(send, receive):
    def exchange(c, thing):
        if RANK % 2 == 0:
            send(c, thing)
        found = receive(c)
        if RANK % 2:
            send(c, thing)
        return found

    return exchange


def object_waited(c, thing):
    sent, coming = c.isend(thing, RIGHT, TAG), c.irecv(bytearray(1 << 20), source=LEFT, tag=TAG)
    found = coming.wait()
    assert sent.wait() is None
    return found


def object_tested(c, thing):
    sent, coming = c.issend(thing, RIGHT, TAG), c.irecv(1 << 20, LEFT, TAG)
    while not (found := coming.test())[0]:
        sent.test()
    while not sent.test()[0]:
        pass
    return found[1]


def object_synchronous(c, thing):
    """Receive it into a request before the synchronous send of it."""
    coming = c.irecv(1 << 20, LEFT, TAG)
    c.ssend(thing, RIGHT, TAG)
    return coming.wait()


#: how an object goes to the right and comes from the left
OBJECTS = {
    "send, recv": in_turn(lambda c, thing: c.send(thing, RIGHT, TAG), object_received),
    "ssend, recv": in_turn(lambda c, thing: c.ssend(thing, dest=RIGHT, tag=TAG), lambda c: c.recv()),
    "send, probe": in_turn(lambda c, thing: c.send(thing, RIGHT, TAG), taken("probe")),
    "send, mprobe": in_turn(lambda c, thing: c.send(thing, RIGHT, TAG), taken("mprobe")),
    "ssend": object_synchronous,
    "sendrecv": lambda c, thing: c.sendrecv(thing, RIGHT, TAG, None, LEFT, TAG),
    "sendrecv by name": lambda c, thing: c.sendrecv(sendobj=thing, dest=RIGHT, source=LEFT),
    "wait": object_waited,
    "test": object_tested,
}


#: calls with the null process, and what mpi4py gives for them
NOBODY = {
    "Send": lambda c, x: c.Send(x, MPI.PROC_NULL),
    "Ssend": lambda c, x: c.Ssend(x, MPI.PROC_NULL),
    "Rsend": lambda c, x: c.Rsend(x, MPI.PROC_NULL),
    "Recv": lambda c, x: c.Recv(x, MPI.PROC_NULL),
    "Sendrecv": lambda c, x: c.Sendrecv(x, MPI.PROC_NULL, 0, x.copy(), MPI.PROC_NULL),
    "Sendrecv_replace": lambda c, x: c.Sendrecv_replace(x, MPI.PROC_NULL, 0, MPI.PROC_NULL),
    "Probe": lambda c, x: c.Probe(MPI.PROC_NULL),
    "Mprobe": lambda c, x: c.Mprobe(MPI.PROC_NULL) == MPI.MESSAGE_NO_PROC,
    "send": lambda c, x: c.send("thing", MPI.PROC_NULL),
    "ssend": lambda c, x: c.ssend("thing", MPI.PROC_NULL),
    "recv": lambda c, x: c.recv(None, MPI.PROC_NULL),
    "sendrecv": lambda c, x: c.sendrecv("thing", MPI.PROC_NULL, source=MPI.PROC_NULL),
    "probe": lambda c, x: c.probe(MPI.PROC_NULL),
    "mprobe": lambda c, x: c.mprobe(MPI.PROC_NULL) == MPI.MESSAGE_NO_PROC,
    "Isend": lambda c, x: c.Isend(x, MPI.PROC_NULL).Wait(),
    "Irecv": lambda c, x: c.Irecv(x, MPI.PROC_NULL).Wait(),
    "isend": lambda c, x: c.isend("thing", MPI.PROC_NULL).wait(),
    "irecv": lambda c, x: c.irecv(None, MPI.PROC_NULL).wait(),
    "test": lambda c, x: c.irecv(None, MPI.PROC_NULL).test(),
}
