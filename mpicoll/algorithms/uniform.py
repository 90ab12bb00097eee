"""Reasons why schedules of all sizes are right if those for 1 to 17, 32 and 64 ranks are; several cards share them."""

AT_RANK_0 = "All ranks but rank 0 have the same part, and rank 0 repeats one rule for each of them."
AT_ROOT = "All ranks but the root have the same part, and the root repeats one rule for each of them."
ALL_PAIRS = "Every rank sends to and receives from each other by one rule in the two ranks' numbers, all at once."
ALL_BEFORE = "Every rank receives from those before it and sends to those after it by one rule in the two numbers."
CHAIN = "Only the chain's first and last rank differ from the others, which repeat one rule with their neighbours."
RING = "Round k is one rule in rank, size and k; ranks differ by a rotation only."
TREE = (
    "A rank's place follows from the binary digits of its number; "
    "a subtree that the last rank cuts off occurs in every way up to 17 ranks."
)
TREE_4 = (
    "A rank's place follows from the digits of its number to the base 4; "
    "a subtree that the last rank cuts off occurs in every way up to 17 ranks."
)
BINE = (
    "A rank's place follows from the digits of its number to the base -2, and round k joins ranks by their last k "
    "digits alone; 2 to 64 ranks have every length of equal digits at the end, up to six."
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
SHIFT_4 = (
    "Round k is one rule in rank, size and k, modulo the size; "
    "only the last round has fewer or shorter messages, by every amount up to 17 ranks."
)
HALVING = (
    "Round k is one rule in rank and in the size halved k times and rounded up, modulo the size; "
    "1 to 17 ranks have every order of even and odd halves for up to four rounds."
)
FOLD = (
    "Off powers of two neighbours fold, which 3 to 17 ranks do with every number of pairs; "
    "the rest is rounds of one rule in bit k."
)
