"""The demo's patterns of communication: their example data, and the protocol of what each rank did."""
