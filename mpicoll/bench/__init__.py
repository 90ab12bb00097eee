"""The benchmark: measures and validates every collective.

    mpirun -n 8 python -m mpicoll.bench --op allreduce,bcast --algorithm all --max 64M

Each of these may import only those below it:

    puzzles/           topology, allreduce-ways and bandwidth: runs with command lines and sentences of their own
    run, interruption  a run from the command line to its exit status, and its end at a signal
    tables/            the lines of each table, one after the other: times, overlap, overhead, breakdown
    output/            the environment, the columns of a table, the report, and the file of results
    contestants/       mpicoll and the baselines, and the instrument that looks into mpicoll's calls
    measure/           the arrays of a call and what must be in them, where arrays live, times and the budget
    request/           the command line, the calls and their buffers' contents, numbers, the list of jobs
    errors             what cannot be served
"""
