"""The path bridged: kernels over mapped memory inside each host, messages between hosts."""
