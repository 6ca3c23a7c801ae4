"""Pairs of programs before and after a remedy, for benches/run gain.

A pair is a part of a program in tests/programs/gain/: `PROGRAM NAME before|after`. `remedy` is what
`mgz what-if` is asked for; it is empty where mgz knows no such remedy. `like` names the public change
whose shape the pair follows. Pairs of the set `held` are looked at when the model is finished.
"""

import collections

Pair = collections.namedtuple("Pair", "source name mechanism remedy held like")


def pair(source, name, mechanism, remedy, held=False, like=""):
    return Pair(source, name, mechanism, remedy, held, like)


PAIRS = [
    pair("layouts.c", "field", "split", "split of struct particle"),
    pair(
        "layouts.c",
        "mesh",
        "pack",
        "pack of struct vertex",
        like="Blender: Mesh: Move positions to a generic attribute",
    ),
    pair("layouts.c", "picked", "split", "split of struct particle", held=True),
    pair(
        "layouts.c",
        "snapshots",
        "split",
        "split of struct process",
        like="PostgreSQL: snapshot scalability: Introduce dense array of in-progress xids.",
    ),
    pair("owned.rs", "bodies", "split", "split of owned::bodies"),
    pair("arrays.f90", "cells", "split", "split of cell", held=True),
    pair("layouts.c", "hot_cold", "hot and cold", "hot-cold of struct entity"),
    pair("containers.cpp", "joined", "hot and cold", "hot-cold of Customer", held=True),
    pair(
        "layouts.c",
        "sockets",
        "reorder",
        "reorder of struct sock",
        like="Linux: tcp: reorganize tcp_sock fast path variables",
    ),
    pair(
        "layouts.c",
        "devices",
        "reorder",
        "reorder of struct device",
        held=True,
        like="Linux: net-device: reorganize net_device fast path variables",
    ),
    pair("layouts.c", "packed", "pack", "pack of struct loose", held=True),
    pair(
        "layouts.c",
        "table",
        "smaller",
        "smaller-elements of struct slot by 6",
        like="CPython: Issue #27350: `dict` implementation is changed like PyPy.",
    ),
    pair("layouts.c", "narrow", "smaller", "smaller-elements of double by 2"),
    pair("layouts.c", "distances", "smaller", "smaller-elements of uint64_t by 8", held=True),
    pair("containers.cpp", "sparse", "smaller", "smaller-elements of long by 2"),
    pair("arrays.f90", "order", "smaller", "smaller-elements of real by 2", held=True),
    pair("layouts.c", "joined", "interleave", "interleave of float"),
    pair("owned.rs", "entries", "interleave", "interleave of u64", held=True),
    pair("loops.c", "exchange", "exchange", "exchange-loops of by_columns"),
    pair("loops.c", "stencil", "exchange", "exchange-loops of smooth_columns", held=True),
    pair("owned.rs", "grid", "exchange", "exchange-loops of columns"),
    pair("arrays.f90", "rows", "exchange", "exchange-loops of by_rows", held=True),
    pair("loops.c", "matrix", "transpose", "exchange-loops of product"),
    pair("loops.c", "blocked", "block", "", held=True),
    pair("loops.c", "pairs_blocked", "block", ""),
    pair("loops.c", "padded", "pad", "pad of double by 8192", held=True),
    pair("loops.c", "columns_of_sets", "pad", "pad of float by 4096"),
    pair(
        "loops.c",
        "counters",
        "align",
        "",
        like="PostgreSQL: Align buffer descriptors to cache line boundaries.",
    ),
    pair(
        "loops.c",
        "limit",
        "align",
        "",
        held=True,
        like="Linux: mm: page_counter: rearrange struct page_counter fields",
    ),
    pair(
        "loops.c",
        "streamed_copy",
        "streaming stores",
        "",
        like="glibc: X86-64: Use non-temporal store in memcpy on large data",
    ),
    pair("loops.c", "streamed_triad", "streaming stores", "", held=True),
    pair("nodes.c", "pool", "pool", "pool of struct node"),
    pair("nodes.c", "tree", "pool", "pool of struct leaf", held=True),
    pair("nodes.c", "chains", "pool", "pool of struct link"),
    pair("containers.cpp", "list", "pool", "pool of std::list", held=True),
    pair("containers.cpp", "shapes", "sort", "sort of sum_shapes"),
    pair("owned.rs", "boxes", "sort", "sort of sum_boxes", held=True),
    pair("nodes.c", "unrolled", "wider nodes", ""),
    pair(
        "nodes.c",
        "wide_nodes",
        "wider nodes",
        "",
        held=True,
        like="Linux: mm: start tracking VMAs with maple tree",
    ),
    pair("containers.cpp", "map", "wider nodes", ""),
    pair(
        "nodes.c",
        "huge_gather",
        "huge pages",
        "huge-pages of take_pages",
        like="NumPy: ENH: Enable huge pages in all Linux builds",
    ),
    pair(
        "nodes.c",
        "huge_chase",
        "huge pages",
        "huge-pages of take_pages",
        held=True,
        like="Stockfish: Advise the kernel to use huge pages (Linux)",
    ),
    pair(
        "nodes.c",
        "prefetched",
        "prefetch",
        "prefetch of probe",
        like="Valkey: Improve multithreaded performance with memory prefetching",
    ),
    pair(
        "nodes.c",
        "buddies",
        "prefetch",
        "prefetch of free_pages",
        held=True,
        like="Linux: mm/free_pcppages_bulk: prefetch buddy while not holding lock",
    ),
    pair("nodes.c", "sorted_counts", "sort", "sort of count_keys"),
    pair("nodes.c", "ranks", "sort", "sort of pull_ranks", held=True),
    pair("owned.rs", "graph", "sort", "", held=True),
]
