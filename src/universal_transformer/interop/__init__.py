"""Exchange of models with other code."""
