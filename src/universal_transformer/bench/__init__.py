"""Measurements behind ``ut bench``: what halting saves, and how fast the fixed depth is beside other libraries.

A room of its own inside the package, because the command is installed with it: a user measures the machine at hand.
It stands on the floor of recipes: it builds models and decodes with them, and only the command line calls it.

Nothing is claimed alone. Sides of a comparison run in turn, A B B A, inside one process; a ratio is the median over
the turns, so that what else the machine does meets both.
"""
