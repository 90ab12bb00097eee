"""Operations in flight: who advances them, how long they may wait, what ends them."""
