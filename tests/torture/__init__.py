"""Figures of reliability (docs/running.md): what must hold when processes, disks, files and numbers fail.

``make torture`` counts them all; ``make torture ONLY=T1,F1`` some of them. `test_torture.py` runs a tenth of each.
"""
