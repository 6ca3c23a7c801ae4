"""Python: attributes of objects in a shuffled list."""

import random


class Account:
    def __init__(self, number):
        self.number = number
        self.balance = number * 1000


random.seed(5)
accounts = [Account(number) for number in range(600_000)]  # data
random.shuffle(accounts)


def balance():
    total = 0
    for account in accounts:
        total += account.balance  # slow
    return total


print(sum(balance() for _ in range(25)))
