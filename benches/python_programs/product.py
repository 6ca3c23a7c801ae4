"""SciPy: a sparse product whose columns are random."""

import numpy as np
import scipy.sparse as sp

rng = np.random.default_rng(9)
rows, entries = 500_000, 12
columns = rng.integers(0, 4_000_000, rows * entries)
starts = np.arange(0, rows * entries + 1, entries)
matrix = sp.csr_array((np.ones(rows * entries), columns, starts), shape=(rows, 4_000_000))
vector = rng.random(4_000_000)  # data


def product():
    return matrix @ vector  # slow


print(round(sum(product()[0] for _ in range(120)), 6))
