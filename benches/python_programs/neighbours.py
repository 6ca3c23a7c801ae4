"""scikit-learn: neighbours of random points in a tree."""

import numpy as np
from sklearn.neighbors import KDTree

rng = np.random.default_rng(10)
points = rng.random((1_000_000, 3))
tree = KDTree(points, leaf_size=8)  # data
asked = rng.random((60_000, 3))


def nearest():
    return tree.query(asked, k=1, return_distance=False)  # slow


print(sum(int(nearest()[0, 0]) for _ in range(6)))
