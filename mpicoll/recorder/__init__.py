"""The flight recorder: the calls made last on each communicator, and a trace of all of them where one is wanted."""
