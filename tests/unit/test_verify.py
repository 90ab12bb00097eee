"""What the verifier says of schedules written by hand, each with one thing wrong."""

import pytest

from mpicoll import ScheduleError, verify
from mpicoll.schedule import Copy, Recv, Reduce, Ref, Schedule, Send, inp, out, step


def scratch(*cells):
    return Ref("scratch", cells)


def ranks(*programs, blocks=1, cells=()):
    """Schedules of ranks, each given by its steps; cells are the blocks that scratch is sized for."""
    return [Schedule(tuple(steps), blocks, cells) for steps in programs]


def refuses(collective, schedules, match, **options):
    with pytest.raises(ScheduleError, match=match):
        verify(collective, schedules, **options)


def exchange(rank, local=()):
    """One step in which two ranks exchange their inputs."""
    return step(Send(inp(0), 1 - rank), Recv(scratch(0), 1 - rank), local)


SUM = [Reduce(out(0), (inp(0), scratch(0))), Reduce(out(0), (scratch(0), inp(0)))]
OWN = Copy(out(0), inp(0))


def test_a_right_one_for_comparison():
    proof = verify("allreduce", ranks(*([exchange(r, SUM[r])] for r in (0, 1)), cells=(0,)))
    assert (proof.ordered, proof.same_bits, proof.scratch) == (True, True, 1)


def test_order_and_bits_are_facts_not_errors():
    mine_first = verify("allreduce", ranks(*([exchange(r, SUM[0])] for r in (0, 1)), cells=(0,)))
    assert (mine_first.ordered, mine_first.same_bits) == (False, False)
    descending = verify("allreduce", ranks(*([exchange(r, SUM[1 - r])] for r in (0, 1)), cells=(0,)))
    assert (descending.ordered, descending.same_bits) == (False, True)


# Deadlocks: every send waits for its receive.


def test_two_ranks_that_both_send_first():
    wrong = ranks(*([step(Send(inp(0), 1 - r)), step(Recv(scratch(0), 1 - r), SUM[r])] for r in (0, 1)), cells=(0,))
    refuses("allreduce", wrong, r"^rank 0, step 0: deadlock: sends input\[0\] to rank 1")


def test_two_ranks_that_both_receive_first():
    wrong = ranks(*([step(Recv(scratch(0), 1 - r)), step(Send(inp(0), 1 - r), SUM[r])] for r in (0, 1)), cells=(0,))
    refuses("allreduce", wrong, r"^rank 0, step 0: deadlock: receives scratch\[0\] from rank 1")


def test_a_circle_of_three():
    steps = [[step(Recv(out(0), (r - 1) % 3)), step(Send(out(0), (r + 1) % 3))] for r in range(3)]
    refuses("bcast", ranks(*steps), r"^rank 0, step 0: deadlock: receives output\[0\] from rank 2")


def test_a_message_that_is_never_received():
    wrong = ranks([step(Send(out(0), 1)), step(Send(out(0), 1))], [step(Recv(out(0), 0))])
    refuses("bcast", wrong, r"^rank 0, step 1: deadlock: sends output\[0\] to rank 1, which never matches it")


def test_a_message_that_is_never_sent():
    wrong = ranks([step(Send(out(0), 1))], [step(Recv(out(0), 0)), step(Recv(out(0), 0))])
    refuses("bcast", wrong, r"^rank 1, step 1: deadlock: receives output\[0\] from rank 0, which never matches it")


@pytest.mark.parametrize("peer", [0, -1, 2])
def test_a_peer_that_is_not_another_rank(peer):
    wrong = ranks([step(Send(out(0), peer))], [step(Recv(out(0), 0))])
    refuses("bcast", wrong, rf"^rank 0, step 0: peer {peer} is not another rank")


# Races.


def test_a_cell_that_is_sent_while_it_is_received():
    wrong = ranks(*([step(OWN), step(Send(out(0), 1 - r), Recv(out(0), 1 - r))] for r in (0, 1)))
    refuses("allreduce", wrong, r"^rank 0, step 1: race: output\[0\] is still being (sent|received)")


def test_a_cell_that_is_received_twice_at_once():
    wrong = ranks([step(Recv(out(0), 1), Recv(out(0), 2))], *([step(Send(inp(0), 0))] for _ in (1, 2)))
    refuses("reduce", wrong, r"^rank 0, step 0: race: output\[0\] is still being received")


def test_a_cell_that_one_message_fills_twice():
    wrong = ranks([step(Send(out((0, 0)), 1))], [step(Recv(out((0, 0)), 0))])
    refuses("bcast", wrong, r"^rank 1, step 0: .*output\[0\]")


def test_a_cell_that_one_operation_writes_twice():
    wrong = ranks([step(Copy(out((0, 0)), inp((0, 0))))])
    refuses("allreduce", wrong, r"^rank 0, step 0: .*output\[0\]")


@pytest.mark.parametrize("shift", [Copy(scratch(1, 2), scratch(0, 1)), Reduce(scratch(1, 2), (scratch(0, 1),))])
def test_an_operation_that_overwrites_what_it_has_yet_to_read(shift):
    """Cells are worked on in any order: only the very cell that is written may be read as well."""
    fill = Copy(scratch(0), inp(0)), Copy(scratch(1), inp(0))
    steps = [step(*fill, shift, Copy(out(0), scratch(2)))]
    refuses("allreduce", ranks(steps, cells=(0, 0, 0)), r"^rank 0, step 0: .*scratch\[1\]")


def test_a_target_may_be_one_of_its_operands():
    steps = [[step(OWN), exchange(r, Reduce(out(0), (out(0), scratch(0))))] for r in (0, 1)]
    verify("allreduce", ranks(*steps, cells=(0,)))


# What may be read and written.


@pytest.mark.parametrize("local", [Copy(inp(0), scratch(0)), Reduce(inp(0), (inp(0), scratch(0)))])
def test_local_work_that_writes_the_input(local):
    wrong = ranks([exchange(0, local)], [exchange(1, SUM[1])], cells=(0,))
    refuses("allreduce", wrong, r"^rank 0, step 0: writes input\[0\]")


def test_a_message_that_overwrites_the_input():
    wrong = ranks([step(Send(inp(0), 1))], [step(Recv(inp(0), 0), OWN)])
    refuses("scan", wrong, r"^rank 1, step 0: writes input\[0\]")


def test_a_message_of_a_cell_without_value():
    wrong = ranks([step(Send(scratch(0), 1))], [step(Recv(out(0), 0))], cells=(0,))
    refuses("bcast", wrong, r"^rank 0, step 0: sends scratch\[0\] before it has a value")


def test_a_reduction_of_a_cell_without_value():
    wrong = ranks([step(Reduce(out(0), (inp(0), scratch(1))))], cells=(0, 0))
    refuses("allreduce", wrong, r"^rank 0, step 0: uses scratch\[1\] before it has a value")


def test_the_value_of_a_later_step_is_no_value_yet():
    wrong = ranks([step(Copy(out(0), scratch(0))), step(Copy(scratch(0), inp(0)))], cells=(0,))
    refuses("allreduce", wrong, r"^rank 0, step 0: uses scratch\[0\] before it has a value")


def test_an_output_that_is_not_this_ranks_to_write():
    wrong = ranks([step(Recv(scratch(0), 1), SUM[0])], [step(Send(inp(0), 0), OWN)], cells=(0,))
    refuses("reduce", wrong, r"^rank 1, end: writes output\[0\], which is not this rank's to write")


@pytest.mark.parametrize("cell", [1, 7, -1])
def test_scratch_that_was_not_declared(cell):
    wrong = ranks([step(Copy(scratch(cell), inp(0))), step(Copy(out(0), scratch(cell)))], cells=(0,))
    refuses("allreduce", wrong, rf"^rank 0, step 0: .*scratch\[{cell}\]")


def test_a_buffer_that_does_not_exist():
    tmp = Ref("temporary", (0,))
    refuses("allreduce", ranks([step(Copy(tmp, inp(0))), step(Copy(out(0), tmp))]), r"^rank 0, step 0: .*temporary")


# Blocks.


def test_a_receiver_that_expects_another_block():
    wrong = ranks([step(Send(inp(1), 1), Copy(out(0), inp(0)))], [step(Recv(out(0), 0))], blocks=2)
    refuses("scatter", wrong, r"^rank 1, step 0: expects blocks \[0\], rank 0 sends \[1\]")


def test_a_receiver_that_expects_another_order():
    wrong = ranks([step(Send(out((0, 1)), 1))], [step(Recv(out((1, 0)), 0))], blocks=2)
    refuses("bcast", wrong, r"^rank 1, step 0: expects blocks \[1, 0\], rank 0 sends \[0, 1\]")


def test_a_receiver_that_expects_less():
    wrong = ranks([step(Send(out((0, 1)), 1))], [step(Recv(out(0), 0))], blocks=2)
    refuses("bcast", wrong, r"^rank 1, step 0: expects blocks \[0\], rank 0 sends \[0, 1\]")


def test_a_block_copied_to_the_place_of_another():
    wrong = ranks([step(Copy(out((0, 1)), inp((1, 0))))], blocks=2)
    refuses("allreduce", wrong, r"^rank 0, step 0: puts block 1 into output\[0\]")


def test_two_blocks_combined_with_each_other():
    wrong = ranks([step(Reduce(out(0), (inp(0), inp(1))))], blocks=2)
    refuses("allreduce", wrong, r"^rank 0, step 0: .*: combines block 0 with block 1")


def test_a_rank_combined_twice():
    twice = Reduce(out(0), (inp(0), scratch(0), inp(0)))
    wrong = ranks([exchange(0, twice)], [exchange(1, SUM[1])], cells=(0,))
    refuses("allreduce", wrong, r"^rank 0, step 0: .*: combines rank 0 twice")
    verify("barrier", wrong)  # tokens without elements: no harm


def test_a_rank_that_was_left_out():
    wrong = ranks([exchange(0, OWN)], [exchange(1, SUM[1])], cells=(0,))
    refuses("allreduce", wrong, r"^rank 0, end: output\[0\] is block 0 of ranks \[0\], not of ranks \[0, 1\]")
    refuses("barrier", wrong, r"^rank 0, end: output\[0\] is block 0 of ranks \[0\], not of ranks \[0, 1\]")


def test_an_output_that_was_never_written():
    wrong = ranks([exchange(0)], [exchange(1, SUM[1])], cells=(0,))
    refuses("allreduce", wrong, r"^rank 0, end: output\[0\] was never written")


def test_a_copy_of_another_length():
    wrong = ranks([step(Copy(out((0, 1)), inp(0)))], blocks=2)
    refuses("allreduce", wrong, r"^rank 0, step 0: .*: sources and target differ in length")


def test_ranks_that_cut_the_vector_differently():
    wrong = ranks([step(OWN)], [step(OWN)])
    wrong[1] = Schedule(wrong[1].steps, 2)
    refuses("barrier", wrong, r"different numbers of blocks: \[1, 2\]")


def test_a_number_of_blocks_that_the_collective_fixes():
    refuses("allgather", ranks([step(OWN)], [step(OWN)]), "allgather has 2 blocks for 2 ranks, not 1")


# In place.


def test_an_input_that_the_output_overwrites_too_early_is_wrong_in_place_only():
    """Rank 0 puts the result where its own operand was, then wants to combine that again."""
    early = [step(Recv(scratch(0), 1), Reduce(out(0), (inp(0), scratch(0)))), step(Send(inp(0), 1))]
    steps = early, [step(Send(inp(0), 0)), step(Recv(scratch(0), 0), SUM[1])]
    proof = verify("allreduce", ranks(*steps, cells=(0,)), in_place=False)
    assert proof.ordered
    refuses("allreduce", ranks(*steps, cells=(0,)), r"^rank 1, step 1: .*combines rank 1 twice")


def test_a_broadcast_has_one_buffer():
    verify("bcast", ranks([step(Send(inp(0), 1))], [step(Recv(out(0), 0))]))


def test_a_broadcast_must_not_touch_the_roots_vector():
    wrong = ranks([step(Recv(out(0), 1))], [step(Send(out(0), 0))])
    refuses("bcast", wrong, r"^rank 1, step 0: sends output\[0\] before it has a value")
