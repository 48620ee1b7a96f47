"""``python -m universal_transformer`` is ``ut``, for launchers that start modules, such as torchrun."""

import sys

from universal_transformer.cli import main

sys.exit(main())
