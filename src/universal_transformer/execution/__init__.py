"""How the model is computed fast, without changing a number: halted positions left out, rows at different depths,
packed matrices, positions over processes. Each loop has the signature of ``nn.recurrence.depth_loop``.

``nn/`` does not import it; ``models/`` installs it (`execution.compaction.install`).
"""
