"""A communicator's own things: a duplicate for messages, slots, scratch, the call cache, and the first call."""
