"""Programs bound to memory: layouts, instructions with everything packed."""
