"""A call's arguments, understood: arrays, buffer arguments, operators, and what each method makes of them."""
