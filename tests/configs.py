"""Model configurations by the short names that earlier versions had: one line where nested dataclasses take ten."""

from universal_transformer.models.config import ModelConfig
from universal_transformer.models.earlier import PATHS, VALUES
from universal_transformer.typed import replaced


def config_of(**fields):
    """A ModelConfig from flat names, ``config_of(width=8, halting=True)``; newer fields have their paths as names."""
    newer = {name: fields.pop(name) for name in list(fields) if "." in name}
    return replaced(ModelConfig.from_dict(fields), newer)


def with_fields(config, **fields):
    """`config` with fields changed by flat names."""
    changes = {
        PATHS.get(name, name): VALUES[name][value] if name in VALUES else value for name, value in fields.items()
    }
    return replaced(config, changes)
