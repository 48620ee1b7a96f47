"""What a run is on disk: its folder, its checkpoints, and what a resume compares.

`trainer` trains in a folder, `opened` reads the model of a run, `folder` has the names of its files.
"""
