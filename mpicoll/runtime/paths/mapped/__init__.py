"""The path mapped: a schedule as one kernel over inboxes that peers map."""
