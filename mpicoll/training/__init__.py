"""Training of models on several ranks."""
