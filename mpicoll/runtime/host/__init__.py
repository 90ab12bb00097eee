"""Work in host memory."""
