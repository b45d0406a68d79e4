"""The composition root: reads the settings and puts the parts together."""

from headwater.engine.connecting import connect
from headwater.engine.headwater import Headwater

__all__ = ["Headwater", "connect"]
