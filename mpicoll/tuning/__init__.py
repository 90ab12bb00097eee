"""The tuner: `mpirun -n N python -m mpicoll tune` measures the machine and writes its tuning table."""
