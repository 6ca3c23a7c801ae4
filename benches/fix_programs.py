"""Programs of benches/run fix: ten with irregular loads of data larger than the caches, and ten without such loads."""

import collections

Program = collections.namedtuple("Program", "name source arguments is_irregular")


def irregular(name):
    return Program(name, f"fixes/{name}.c", [], True)


def clean(name, rounds, folder="kernels"):
    """Rounds that take about a second."""
    return Program(name, f"{folder}/{name}.c", [str(rounds)], False)


PROGRAMS = [
    irregular("bucket_sort"),
    irregular("conjugate"),
    irregular("hash_join"),
    irregular("breadth_first"),
    irregular("page_rank"),
    irregular("shortest_paths"),
    irregular("betweenness"),
    irregular("random_access"),
    irregular("sparse_product"),
    irregular("tree_search"),
    clean("bodies", 5000, "fixes"),
    clean("triad", 200, "fixes"),
    clean("matmul", 700),
    clean("stencil", 90000),
    clean("scan", 4500),
    clean("sort", 2500),
    clean("hash", 200000),
    clean("bfs", 6500),
    clean("chase", 280000),
    clean("spmv", 85000),
]
