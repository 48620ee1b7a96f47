"""Figures of what a model does, and the report of a run as one page."""
