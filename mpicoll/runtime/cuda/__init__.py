"""Work on a CUDA device: kernels, launches, streams, copies."""
