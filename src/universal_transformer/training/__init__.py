"""Training: updates, validations and the choice of weights. Nothing here reads or writes a file of a run.

`run_config` holds the configuration of a run, `objective` its loss, `optimizer` Adam and the schedules; `validation`
scores the model, `selection` keeps the weights that a run may end with, `display` shows its progress, and `run` is the
loop. Nothing is imported here, so that configurations can be created and printed without torch.
"""
