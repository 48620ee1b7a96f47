"""Training: a run configuration and a task give a run folder with a trained model in it.

`config` says what a run is, `objective` what is minimised, `optimizer` how; `validation` judges, `checkpoint` and
`folder` keep it safe, `tracking` shows it, `trainer` puts the parts together. Nothing is imported here, so that
configurations can be made and printed without torch.
"""
