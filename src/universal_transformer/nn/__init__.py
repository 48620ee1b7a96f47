"""Coordinates, attention, transition, halting and the recurrence over depth: pure functions and small modules."""
