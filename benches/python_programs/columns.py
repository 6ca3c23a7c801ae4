"""NumPy: columns of an array whose rows are contiguous."""

import numpy as np

grid = np.ones((6000, 2048))  # data


def column_sums():
    sums = np.empty(grid.shape[1])
    for column in range(grid.shape[1]):
        sums[column] = grid[:, column].sum()  # slow
    return sums


print(sum(column_sums()[0] for _ in range(15)))
