"""Reasons why schedules of all sizes are right if those for 1 to 17, 32 and 64 ranks are; several cards share them."""

AT_RANK_0 = "All ranks but rank 0 have the same part, and rank 0 repeats one rule for each of them."
AT_ROOT = "All ranks but the root have the same part, and the root repeats one rule for each of them."
ALL_PAIRS = "Every rank sends to and receives from each other by one rule in the two ranks' numbers, all at once."
CHAIN = "Only the chain's first and last rank differ from the others, which repeat one rule with their neighbours."
RING = "Round k is one rule in rank, size and k; ranks differ by a rotation only."
TREE = (
    "A rank's place follows from the binary digits of its number; "
    "a subtree that the last rank cuts off occurs in every way up to 17 ranks."
)
TWO_TREES = (
    "Both trees follow from the binary digits of a place and the parity of the size; "
    "2 to 17 ranks have every cut of the last subtree."
)
PAIRS = "Round k pairs ranks by bit k alone, and rounds repeat one rule; 2 to 16 ranks have every position of the bit."
SHIFT = (
    "Round k is one rule in rank, size and k, modulo the size; "
    "only the last round is cut short, by every amount up to 17 ranks."
)
FOLD = (
    "Off powers of two neighbours fold, which 3 to 17 ranks do with every number of pairs; "
    "the rest is rounds of one rule in bit k."
)
