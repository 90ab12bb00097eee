"""The benchmark: measures and validates every collective.

    mpirun -n 8 python -m mpicoll.bench --op allreduce,bcast --algorithm all --max 64M

`options` says what is asked for, `cases` which calls that makes and what they hold, `data` with which
numbers, `trial` makes the arrays and judges them, `clock` and `measure` take the time of the `subject`,
`facts`, `report` and `progress` say with what, what came out and how far it is; `run` puts these together.
"""
