"""Report the numbers of a run to trackio, which shows them in a page on this machine.

    pip install 'trackio>=0.43'
    python examples/trackio_tracker.py train stories --run runs/tracked --training.tracker trackio
    trackio show --project universal-transformer

The file is the command `ut` with one more tracker. The record of a run stays in its metrics.jsonl.
"""

import sys

try:
    import trackio
except ImportError as error:
    raise SystemExit(f"{error}: this example needs trackio: pip install 'trackio>=0.43'") from error

from universal_transformer.cli import main
from universal_transformer.runs.trackers import TRACKERS


class Trackio:
    """One run of trackio for one run folder, whose name it has; a run that is continued goes on there."""

    def __init__(self, folder):
        self.name = folder.name

    def start(self, config, *, after):
        trackio.init("universal-transformer", name=self.name, config=dict(config), resume="allow" if after else "never")

    def log(self, values, *, update):
        trackio.log(dict(values), step=update)

    def finish(self):
        trackio.finish()


TRACKERS["trackio"] = f"{__name__}:Trackio"

if __name__ == "__main__":
    # without arguments: a short run, to see that it works
    short = "train stories --run runs/tracked --training.tracker trackio --training.max-updates 60"
    sys.exit(main(sys.argv[1:] or short.split()))
