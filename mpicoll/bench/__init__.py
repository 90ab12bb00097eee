"""The benchmark: measures and validates every collective.

    mpirun -n 8 python -m mpicoll.bench --op allreduce,bcast --algorithm all --max 64M

`options` says what is asked for (`reading` reads its values), `cases` which calls that makes and what they hold,
`data` with which numbers, `jobs` which measurements there are; `trial` makes the arrays and judges them, `clock` and
`measure` take the time of the `subject` and, in turn, of its `baselines` (NCCL's in `nccl`); `bench` does one line
of the table after the other; `facts`, `report` and `progress` say with what, what came out and how far it is,
`results` keeps it in a file, and `interruption` ends a run at a signal.
`overlap`, `overhead` and `breakdown` are other tables, the last two by a look `inside` a call; `run` puts all
together.
"""
