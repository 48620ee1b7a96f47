"""The measurements of ``ut bench``: what halting saves, and how fast a fixed depth is compared with other libraries.

This package is installed with the command, so that a user can measure the machine at hand. Only the command line
imports it.

Every figure is a comparison. The sides of a comparison run in turns (A B B A) inside one process, and a ratio is the
median over the turns, so that other load on the machine affects all sides.
"""
