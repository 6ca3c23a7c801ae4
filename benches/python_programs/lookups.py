"""Python: keys of a large dictionary in random order."""

import random

random.seed(6)
prices = {key * 7: key * 1000 for key in range(1_500_000)}  # data
wanted = [key * 7 for key in range(1_500_000)]
random.shuffle(wanted)


def price():
    total = 0
    for key in wanted:
        total += prices[key]  # slow
    return total


print(sum(price() for _ in range(5)))
