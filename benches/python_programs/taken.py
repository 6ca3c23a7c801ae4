"""Pandas: rows of a column in random order."""

import numpy as np
import pandas as pd

rng = np.random.default_rng(7)
values = rng.random(6_000_000)  # data
sales = pd.Series(values, copy=False)
order = rng.permutation(len(values))


def total():
    return sales.take(order).sum()  # slow


print(round(sum(total() for _ in range(30)), 3))
