"""What a communicator has of its own: a duplicate for messages, slots, scratch, and the first call."""
