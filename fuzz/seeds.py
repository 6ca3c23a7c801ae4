#!/usr/bin/env python3
"""Makes seeds for the fuzz targets out of small real files: seeds.py CORPUS TARGET…

Nothing is downloaded: seeds are compiled or put together here, or copied from fuzz/seeds/TARGET. Files that exist
are left alone.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

PRELUDE = struct.Struct("<4sI16sQQQ")
M64 = (1 << 64) - 1


def put(folder, name, data):
    path = os.path.join(folder, "seed-" + name)
    if not os.path.exists(path):
        with open(path, "wb") as f:
            f.write(data)


def address_map():
    """Two functions: plain copies, an inserted instruction, a probe state, skipped original bytes."""
    streams = [bytes([0x33, 0x04, 0x00, 0x01, 0x44, 0x00, 0x00, 0x55]), bytes([0x11, 0x40, 0x22])]
    functions = [(0x9000, 0x9010, 0x1000, 0), (0x9010, 0x9013, 0x1010, len(streams[0]))]
    states = [bytes([0, 255, 0, 0] + [255] * 12), bytes([2, 3, 0, 0, 3, 0] + [255] * 10)]
    stream = b"".join(streams)
    return (
        struct.pack("<IIQ", 2, 2, len(stream))
        + b"".join(struct.pack("<4I", *f) for f in functions)
        + b"".join(states)
        + stream
    )


def sidecar():
    """A sidecar with raw (uncompressed) columns of one row each, so that mutations reach the tables."""
    tables = {
        "functions": "name:u32 left:u32 start:u64 end:u64 clone_start:u64 clone_end:u64",
        "sites": "function:u32 region:u32 location:u32 size:u32 ip:u64 clone_ip:u64 disp:i64 stride:i64 op_disp:i64 class:u8 kind:u8 flags:u8 reason:u8 a:u8 b:u8 "
        "scale:u8 op_base:u8 op_index:u8 op_scale:u8 op_seg:u8",
        "regions": "function:u32 first_record:u32 record_count:u32 first_site:u32 site_count:u32 implied_const:u32",
        "records": "region:u32 slots:u32 clone_ip:u64 ip:u64",
        "ptwrites": "ip:u64 record:u32 part:u32",
        "gathers": "site:u32 lanes:u32 mask_bytes:u32 index_bytes:u32",
        "locations": "function:u32 file:u32 line:u32 inlined_into:u32",
    }
    values = {
        ("functions", "left"): 0xFFFFFFFF,
        ("regions", "record_count"): 1,
        ("regions", "site_count"): 1,
        ("records", "slots"): 1,
        ("sites", "b"): 255,
        ("sites", "size"): 8,
        ("sites", "scale"): 1,
        ("gathers", "lanes"): 4,
        ("locations", "inlined_into"): 0xFFFFFFFF,
    }
    body, columns = b"", []

    def add(table, name, kind, rows, raw):
        nonlocal body
        body += bytes(-len(body) % 8)
        columns.append(
            {
                "table": table,
                "name": name,
                "kind": kind,
                "rows": rows,
                "encoding": "raw",
                "offset": len(body),
                "bytes": len(raw),
                "raw_bytes": len(raw),
            }
        )
        body += raw

    map_bytes = address_map()
    add("map", "map", "u8", len(map_bytes), map_bytes)
    for table, fields in tables.items():
        for name, kind in (f.split(":") for f in fields.split()):
            width = {"u8": 1, "u32": 4, "u64": 8, "i64": 8}[kind]
            add(table, name, kind, 1, values.get((table, name), 0).to_bytes(width, "little"))
    add("strings", "text", "utf8", 2, b"main\0a.c\0")
    header = json.dumps(
        {
            "format": "mgz-annotations",
            "version": 1,
            "flavour": "soft",
            "id_count": 1,
            "columns": columns,
        }
    ).encode()
    header += b" " * (-len(header) % 8)
    return (
        PRELUDE.pack(
            b"MGZA", 1, bytes(range(16)), len(header), PRELUDE.size + len(header), len(map_bytes)
        )
        + header
        + body
    )


def mix(lane, word):
    x = (lane ^ word) * 0x9E3779B97F4A7C15 & M64
    return (x << 29 | x >> 35) & M64


def segment(kind, slots):
    """One spill segment, every slot with its id and a payload of eight bytes; the first id is written out, as ids far off are."""
    control, ids, data = b"", b"", b""
    table, previous = {}, None
    for start in range(0, len(slots), 1024):
        block, words = slots[start : start + 1024], []
        for i, (slot_id, payload) in enumerate(block):
            last = table.get(slot_id & 63, 0)
            table[slot_id & 63] = payload
            near = previous is not None and abs(slot_id - previous) < 0x7FFF
            ids += (
                struct.pack("<h", slot_id - previous)
                if near
                else struct.pack("<hI", 0x7FFF, slot_id)
            )
            previous = slot_id
            data += struct.pack("<Q", payload - last & M64)
            if i % 16 == 0:
                words.append(0)
            words[-1] |= 0xF << 4 * (i % 16)
        control += struct.pack("<Q", (1 << len(words)) - 1) + b"".join(
            struct.pack("<Q", w) for w in words
        )
    data += bytes(8)
    aux = b"\x01" + struct.pack("<I", 10)

    def header(check):
        return struct.pack(
            "<4sBBBBIIIIQQQQQII",
            b"MGZS",
            kind,
            0,
            6,
            0,
            len(slots),
            len(control),
            len(data),
            len(aux),
            0,
            1000,
            2000,
            check,
            0,
            len(ids),
            0,
        )

    lanes = [1, 2, 3, 4]
    for part in (header(0), control, ids, data, aux):
        part += bytes(-len(part) % 8)
        for i in range(0, len(part), 8):
            lane = i // 8 % 4
            lanes[lane] = mix(lanes[lane], int.from_bytes(part[i : i + 8], "little"))
    check = 0
    for lane in lanes:
        check = mix(check, lane)
    return header(check) + control + ids + data + aux


def spill():
    head = b"MGZSPILL" + struct.pack("<IIII", 2, 24, 100, 101)
    return (
        head
        + segment(0, [(i % 5, 0x1000 + 8 * i) for i in range(40)])
        + segment(1, [(0xFFFFFF00, 0x1234), (3, 7), (9, 1 << 47)])
    )


def manifest():
    return json.dumps(
        {
            "format": "mgz-trace",
            "version": 1,
            "command": ["./a", "b"],
            "backend": "soft",
            "mode": "ring",
            "period": 1000000,
            "window": 1000,
            "state": "complete",
            "modules": [
                {
                    "path": "a",
                    "bias": 4096,
                    "sidecar": "annotations/a.mgza",
                    "sidecar_id": "00" * 16,
                }
            ],
            "threads": [
                {"process": 1, "thread": 1, "records_executed": 5, "rows": 5, "samples": 1}
            ],
            "totals": {
                "records_executed": 5,
                "loads_executed": None,
                "loads_executed_estimate": 1.5,
                "dropped": {"before_start": 1},
            },
            "problems": ["x"],
        }
    ).encode()


# Switch tables, loops, string instructions, a tail call; small because it needs no library.
PROGRAM = r"""
static int table[64]; static char text[64];
__attribute__((noinline)) int choose(int x) {
    switch (x) { case 0: return table[1]; case 1: return text[2] * 3; case 2: return x + table[3]; case 3: table[4]++; return 5; case 4: return text[x] - 1; case 5: return 11; default: return x ^ 9; }
}
__attribute__((noinline)) static int walk(const int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i] + choose(i & 7); return s; }
int (*pointer)(const int *, int) = walk;
int run(int n) { const void *from = table; void *to = text; long count = n & 63; __asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count) :: "memory"); return pointer(table, n & 63); }
"""
START = '__attribute__((force_align_arg_pointer)) void _start(void) { int s = run(20); __asm__ volatile("syscall" :: "a"(231), "D"(s & 0) : "rcx", "r11"); __builtin_unreachable(); }'
THROWS = "int run(int); struct D { int &x; ~D() { x++; } }; int f(int n) { int x = 0; try { D d{x}; if (n > 3) throw n; run(n); } catch (int e) { return e + x; } return x; } int main(int c, char **) { return f(c) + f(c + 4); }"


def elf():
    """Small ELF files of each kind: static, position-independent, library, with exceptions, with debug information."""
    variants = {
        "static": ("c", PROGRAM + START, ["-O2", "-static", "-nostdlib", "-fno-pie", "-no-pie"]),
        "static-O0": ("c", PROGRAM + START, ["-O0", "-static", "-nostdlib", "-fno-pie", "-no-pie"]),
        "pie": ("c", PROGRAM + START, ["-O2", "-static-pie", "-nostdlib", "-fpie"]),
        "debug": ("c", PROGRAM + START, ["-O1", "-g", "-static", "-nostdlib", "-no-pie"]),
        "library": ("c", PROGRAM, ["-O3", "-shared", "-fpic", "-nostdlib"]),
        "dynamic": ("c", PROGRAM + "int main(void) { return run(9) & 0; }", ["-O2"]),
        "throws": (
            "cc",
            PROGRAM.replace("int run", 'extern "C" int run').replace(
                "int choose", "static int choose"
            )
            + THROWS.replace("int run(int);", ""),
            ["-O2", "-fpermissive", "-w"],
        ),
    }
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (suffix, text, flags) in variants.items():
            compiler = shutil.which("c++" if suffix == "cc" else "cc")
            source, program = os.path.join(folder, "a." + suffix), os.path.join(folder, "a")
            with open(source, "w") as f:
                f.write(text)
            subprocess.run(
                [
                    compiler,
                    "-w",
                    *flags,
                    source,
                    "-o",
                    program,
                    "-Wl,--build-id=none",
                    "-Wl,-z,noseparate-code",
                ],
                check=True,
            )
            if "debug" not in name:
                subprocess.run(["strip", program], check=True)
            with open(program, "rb") as f:
                out[name] = f.read()
    return out


def perf_map():
    return (
        b"7f0010 20 square\n0x00007f1100000000 0x00000000000000c0 int Hot.sum(int[])\n"
        b"7f0018 40 JS:*work /app/a.js:3:7\n7f3000 0 empty\nnonsense\n"
    )


def jitdump():
    """Lines of a function, its code, its move, another function at its old place, the end."""

    def record(kind, time, body):
        return struct.pack("<IIQ", kind, 16 + len(body), time) + body

    head = struct.pack("<6IQQ", 0x4A695444, 1, 40, 62, 0, 77, 5, 0)
    lines = struct.pack("<QQQII", 0x1000, 1, 0x1000, 7, 0) + b"a.lua\0"
    first = struct.pack("<II4Q", 77, 77, 0x1000, 0x1000, 8, 1) + b"first\0" + bytes(8)
    moved = struct.pack("<II5Q", 77, 77, 0x1000, 0x1000, 0x9000, 8, 1)
    second = struct.pack("<II4Q", 77, 77, 0x1004, 0x1004, 8, 2) + b"second\0" + bytes(8)
    records = [(2, 10, lines), (0, 10, first), (1, 20, moved), (0, 30, second), (3, 40, b"")]
    return head + b"".join(record(*r) for r in records)


MAKERS = {
    "elf": elf,
    "address_map": lambda: {"two": address_map()},
    "sidecar": lambda: {"raw": sidecar()},
    "spill": lambda: {"two": spill()},
    "spill_round_trip": lambda: {"steps": bytes(range(256)) * 8},
    "expand": lambda: {
        "records": bytes(b for i in range(120) for b in (i % 12, i, 0)),
        "markers": bytes(b for i in range(120) for b in (64 + i % 60, 4 * i % 256, 1)),
    },
    "manifest": lambda: {"ring": manifest()},
    "perf_map": lambda: {"lines": perf_map()},
    "jitdump": lambda: {"moved": jitdump()},
    "jit_elf": elf,
}


def main():
    corpus, targets = sys.argv[1], sys.argv[2:]
    for target in targets:
        folder = os.path.join(corpus, target)
        os.makedirs(folder, exist_ok=True)
        for name, data in MAKERS.get(target, dict)().items():
            put(folder, name, data)
        kept = os.path.join(os.path.dirname(os.path.abspath(__file__)), "seeds", target)
        for name in sorted(os.listdir(kept)) if os.path.isdir(kept) else []:
            with open(os.path.join(kept, name), "rb") as f:
                put(folder, name, f.read())


if __name__ == "__main__":
    main()
