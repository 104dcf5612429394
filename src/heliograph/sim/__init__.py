"""The ports of `heliograph.runtime.ports` under one seed, for tests that repeat: see `Simulation` in
`sim/world.py`.

    from heliograph.sim import Fails, PowerCut, SimDisk, Simulation, explore_crashes

Tasks take turns at port calls, the clock jumps to the next deadline, and the disk loses what was not synced,
cuts writes, flips bits, fills up and fails, all as the seed and the given faults say. A failing run names its
seed; the same seed repeats it call by call.
"""

from heliograph.sim.crashes import Explored, Scenario, explore_crashes
from heliograph.sim.disk import Keep, SimDisk, SimFile
from heliograph.sim.faults import Fails, Fault, Flips, PowerCut, PowerLoss
from heliograph.sim.medium import Decide, Medium
from heliograph.sim.scheduler import Killed, PortCall, Trace
from heliograph.sim.world import Process, SimClock, SimRandom, Simulation

__all__ = [
    "Decide",
    "Explored",
    "Fails",
    "Fault",
    "Flips",
    "Keep",
    "Killed",
    "Medium",
    "PortCall",
    "PowerCut",
    "PowerLoss",
    "Process",
    "Scenario",
    "SimClock",
    "SimDisk",
    "SimFile",
    "SimRandom",
    "Simulation",
    "Trace",
    "explore_crashes",
]
