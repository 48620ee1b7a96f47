"""Training: a run configuration and a task give a run folder with a trained model in it.

`config` holds the configuration of a run, `objective` its loss, `optimizer` Adam and the schedules; `validation` scores
the model, `checkpoint` and `folder` save the run, `tracking` shows its progress, `run` makes the updates, `trainer`
combines the parts. Nothing is imported here, so that configurations can be created and printed without torch.
"""
