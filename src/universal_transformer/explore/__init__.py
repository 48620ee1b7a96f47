"""To see what a model does: figures, and the report of a run as one page."""
