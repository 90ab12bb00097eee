"""How a program ends: by itself and within seconds, whatever it left open."""

import pytest

#: what a program leaves behind when it ends
LEFT = {
    "complete": """
        request = comm.Iallreduce(x, y)
        request.Wait()
        kept = comm.Allreduce_init(x, y)
        kept.Start()
        kept.Wait()
        never = comm.Bcast_init(x)
        plans = [comm.Allreduce(x[:n], y[:n]) for n in range(1, 50)]
        made = [comm.Dup(), comm.Split(rank % 2, -rank)]
        calls = [c.Allreduce(x, y) for c in made]
        freed = comm.Dup()
        freed.Allreduce(x, y)
        freed.Free()
        mpicoll.allreduce(1)
        mpicoll.allreduce(1, comm=MPI.COMM_SELF)
    """,
    "nonblocking": "request = comm.Iallreduce(x, y)",
    "persistent": "request = comm.Allreduce_init(x, y); request.Start()",
    "several": "requests = [comm.Iallreduce(x, np.zeros(50)) for _ in range(9)]; p = comm.Bcast_init(x); p.Start()",
    "elsewhere": "own = comm.Dup(); request = own.Iallreduce(x, y)",
    "cycle": """
        class Holder:
            pass

        holder = Holder()
        holder.me, holder.request = holder, comm.Ibarrier()
        del holder
    """,
}
#: how it ends
ENDS = {
    "sys.exit": "sys.exit()",
    "sys.exit in the middle": "def deep():\n    sys.exit(0)\ntry:\n    deep()\nfinally:\n    gone = 1",
    "MPI.Finalize": "MPI.Finalize()",
    "MPI.Finalize in atexit": "import atexit; atexit.register(MPI.Finalize)",
}


@pytest.mark.case("FINALIZE")
@pytest.mark.parametrize("left", LEFT)
def test_the_end_of_a_program(plain, left):
    """A program ends well, whatever it leaves behind."""
    plain(LEFT[left], "last_words()", ranks=2).is_clean(2)


@pytest.mark.case("FINALIZE")
@pytest.mark.parametrize("end", ENDS)
def test_ways_to_end(plain, end):
    """With all that is complete; and, unless MPI forbids it, with a call on its way."""
    on_its_way = "" if "Finalize" in end else "on_its_way = comm.Iallreduce(x, y)"
    plain(LEFT["complete"], on_its_way, "last_words()", ENDS[end], ranks=2).is_clean(2)


def test_an_exit_code_is_kept(plain):
    ended = plain("request = comm.Allreduce_init(x, y)\nlast_words()\nsys.exit(7)", ranks=2)
    assert ended.code == 7, ended.output
    assert "Traceback" not in ended.output
    ended.ends_soon()


@pytest.mark.case("FINALIZE")
def test_calls_after_finalize_are_refused(plain):
    """Whatever is called, it is a RuntimeError, and the process lives on; what is freed may be freed."""
    body = """
        kept = comm.Allreduce_init(x, y)
        MPI.Finalize()
        calls = {
            "method": lambda: comm.Allreduce(x, y),
            "nonblocking": lambda: comm.Iallreduce(x, y),
            "start": kept.Start,
            "barrier": comm.Barrier,
            "wrap": lambda: mpicoll.Communicator(world),
            "function": lambda: mpicoll.allreduce(x),
            "function of a communicator": lambda: mpicoll.allreduce(x, comm=comm),
            "plan": lambda: comm.Get_plan("Allreduce", x, y),
            "duplicate": comm.Dup,
            "free": comm.Free,
        }
        for name, call in calls.items():
            error, _ = raised(call)
            assert isinstance(error, RuntimeError) and "MPI was finalized" in str(error), (name, error)
        kept.Free()
        last_words()
    """
    plain(body, ranks=1).is_clean(1)
