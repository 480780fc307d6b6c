"""Where releases can be watched: one door that every mechanism of the package goes through.

`taut.audit.replay` runs a program twice, on neighbouring data, and looks at every release. A
mechanism hands its draw to `released`, which does nothing else while no replay is going on. Those
who write mechanisms of their own do the same, and take part.
"""

from taut._base import surface
from taut.noise.recording._recorder import Bound, Recorder, Release, active, recording, released

__all__ = ["Bound", "Recorder", "Release", "active", "recording", "released"]

surface.claim(globals())
