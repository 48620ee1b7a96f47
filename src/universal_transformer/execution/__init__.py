"""How the model is computed fast, without changing a number: halted positions left out, rows at different depths, CPU
kernels.

``nn/`` does not import it; ``models/`` installs it (:func:`~universal_transformer.execution.install.install`).
"""
