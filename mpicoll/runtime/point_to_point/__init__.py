"""Messages of device arrays."""
