"""NumPy: one field of an array of records."""

import numpy as np

kind = np.dtype([("mass", "f8"), ("place", "f8", 3), ("speed", "f8", 3), ("age", "i8")])
bodies = np.zeros(1_500_000, dtype=kind)  # data
bodies["mass"] = 1.5


def mass():
    return bodies["mass"].sum()  # slow


print(sum(mass() for _ in range(800)))
