"""NumPy: elements of a table in random order."""

import numpy as np

rng = np.random.default_rng(1)
table = rng.random(8_000_000)  # data
order = rng.permutation(len(table))


def total():
    return table[order].sum()  # slow


print(sum(total() for _ in range(25)))
