"""What the tuner says while it measures."""

from mpicoll.tuning.run import _shown


def test_progress_is_a_line_for_each_tenth_where_there_is_no_terminal(capsys):
    with _shown(0) as shown:
        tell = shown(4)
        for done in range(101):
            tell(done / 100, "bcast" if done < 100 else "")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0] == "mpicoll tune: 4 ranks, 10 % bcast"
    assert lines[-1] == "mpicoll tune: 4 ranks, 100 %"


def test_one_rank_tells_of_it(capsys):
    with _shown(1) as shown:
        shown(4)(1.0, "bcast")
    assert capsys.readouterr() == ("", "")
