"""Pandas: sums of many groups whose keys come in random order."""

import numpy as np
import pandas as pd

rng = np.random.default_rng(8)
keys = rng.integers(0, 3_000_000, 4_000_000)
orders = pd.DataFrame({"customer": keys, "price": rng.random(len(keys))})


def sums():
    return orders.groupby("customer", sort=False)["price"].sum()  # slow, data


print(round(sum(sums().iloc[0] for _ in range(8)), 6))
