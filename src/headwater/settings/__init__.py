"""Settings: what `headwater.yaml` and the environment say, checked, as plain data."""

from headwater.settings.loader import (
    CONFIG_FILE,
    CONFIG_VARIABLE,
    environment_settings,
    find_file,
    load_settings,
)
from headwater.settings.model import (
    DEFAULT_FOLDER,
    LakeSettings,
    MaintenanceSettings,
    ServiceSettings,
    Settings,
    SparkSettings,
)

__all__ = [
    "CONFIG_FILE",
    "CONFIG_VARIABLE",
    "DEFAULT_FOLDER",
    "LakeSettings",
    "MaintenanceSettings",
    "ServiceSettings",
    "Settings",
    "SparkSettings",
    "environment_settings",
    "find_file",
    "load_settings",
]
