"""Contestants: mpicoll, and in turn with it the baselines; and a look into mpicoll's calls."""
