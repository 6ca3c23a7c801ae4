"""Reads what the benchmarks need of an mgz sidecar, and turns `ptwrite`s of a file into NOPs.

The format is described in `annotations-schema/src/{abi,columns,sidecar}.rs`: a prelude of 48 bytes, a JSON header,
columns. Only whole columns of fixed-width numbers are read here.
"""

import json
import os
import shutil
import struct
import subprocess

PRELUDE = struct.Struct("<4sI16sQQQ")
WIDTHS = {"u8": "B", "u32": "I", "u64": "Q", "i64": "q"}
# The recommended multi-byte NOPs, by length.
NOPS = {
    4: bytes.fromhex("0f1f4000"),
    5: bytes.fromhex("0f1f440000"),
    6: bytes.fromhex("660f1f440000"),
    7: bytes.fromhex("0f1f8000000000"),
    8: bytes.fromhex("0f1f840000000000"),
    9: bytes.fromhex("660f1f840000000000"),
}


def decompress(data, raw_bytes):
    """zstd by the Python module where it is installed, else by the `zstd` program."""
    try:
        import zstandard
    except ImportError:
        if not shutil.which("zstd"):
            raise SystemExit(
                "reading sidecars needs zstd: `apt install zstd` or `pip install zstandard`"
            ) from None
        return subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=True).stdout
    # A column may have several frames.
    return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read(raw_bytes)


def compress(data):
    """zstd by the `zstd` program."""
    return subprocess.run(
        ["zstd", "-19", "-cq", "--no-check"], input=data, capture_output=True, check=True
    ).stdout


def differences(values, kind):
    """Elements as the encoding `delta` has them before compression."""
    bits = 8 * struct.calcsize(f"<{WIDTHS[kind]}")
    out, last = bytearray(), 0
    for value in values:
        step = value - last & (1 << bits) - 1
        last = value
        step -= step >> bits - 1 << bits
        number = step << 1 if step >= 0 else ~(step << 1)
        while number >= 0x80:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


def numbers(data, kind, is_delta):
    """The elements that LEB128 numbers with the sign in the lowest bit stand for, or differences of elements."""
    mask = (1 << 8 * struct.calcsize(f"<{WIDTHS[kind]}")) - 1
    out, last, number, shift = [], 0, 0, 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            value = number >> 1 ^ -(number & 1)
            last = (last + value if is_delta else value) & mask
            out.append(last - (mask + 1) if kind == "i64" and last >> 63 else last)
            number = shift = 0
    return tuple(out)


class Sidecar:
    """A sidecar's header, and its columns on demand."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.bytes = f.read()
        magic, version, self.id, header, _, _ = PRELUDE.unpack_from(self.bytes)
        if magic != b"MGZA" or version != 1:
            raise ValueError(f"{path} is not a sidecar of version 1")
        self.body = PRELUDE.size + header
        self.header = json.loads(self.bytes[PRELUDE.size : self.body])

    def column(self, table, name):
        """All values of one column, as a tuple."""
        (c,) = [c for c in self.header["columns"] if c["table"] == table and c["name"] == name]
        start = self.body + c["offset"]
        data = self.bytes[start : start + c["bytes"]]
        if c["encoding"] != "raw":
            data = decompress(data, c["raw_bytes"])
        if len(data) != c["raw_bytes"]:
            raise ValueError(f"column {table}.{name} has {len(data)} bytes, not {c['raw_bytes']}")
        if c["encoding"] in ("varint", "delta"):
            return numbers(data, c["kind"], c["encoding"] == "delta")
        if c["kind"] == "utf8":
            return tuple(data.decode().split("\0")[:-1])
        return struct.unpack(f"<{c['rows']}{WIDTHS[c['kind']]}", data)

    def tables(self):
        """All columns but the address map: `{table: {column: list of values}}`."""
        out = {}
        for c in self.header["columns"]:
            if c["table"] != "map":
                values = list(self.column(c["table"], c["name"]))
                out.setdefault(c["table"], {})[c["name"]] = values
        return out

    def write(self, path, tables):
        """Writes a sidecar with this identity, these columns, no address map and no report."""
        kinds = {(c["table"], c["name"]): c["kind"] for c in self.header["columns"]}
        columns, body = [], b""
        for (table, name), kind in kinds.items():
            values = tables.get(table, {}).get(name, [])
            encoding = "raw" if table == "map" else "zstd"
            if kind == "utf8":
                raw = "".join(f"{text}\0" for text in values).encode()
            elif kind == "u64":
                raw, encoding = differences(values, kind), "delta"
            else:
                raw = struct.pack(f"<{len(values)}{WIDTHS[kind]}", *values)
            stored = raw if table == "map" else compress(raw)
            columns.append(
                {
                    "table": table,
                    "name": name,
                    "kind": kind,
                    "rows": len(values),
                    "encoding": encoding,
                    "offset": len(body),
                    "bytes": len(stored),
                    "raw_bytes": len(raw),
                }
            )
            body += stored + bytes(-len(stored) % 8)
        header = json.dumps({**self.header, "report": {}, "columns": columns}).encode()
        header += b" " * (-(PRELUDE.size + len(header)) % 8)
        prelude = PRELUDE.pack(b"MGZA", 1, self.id, len(header), PRELUDE.size + len(header), 0)
        with open(path, "wb") as f:
            f.write(prelude + header + body)


NONE = 0xFFFFFFFF


def keep_rows(columns, kept, blank):
    """Makes each row outside of `kept` a blank one: `blank` has its values; other columns repeat the row before."""
    for name, values in columns.items():
        for row, value in enumerate(values):
            if row not in kept:
                values[row] = blank.get(name, values[row - 1] if row else 0)


def keep_sites(tables, seen):
    """Leaves in the tables of a sidecar what describes the functions of the sites `seen`, for readers of rows. Indices
    stay: the other rows are blank, and records and regions are gone."""
    sites, functions, loops = tables["sites"], tables["functions"], tables["loops"]
    locations, strings = tables["locations"], tables["strings"]["text"]
    code = {sites["function"][s] for s in seen}
    rows = {row for row, function in enumerate(sites["function"]) if function in code}
    inside = {row for row, function in enumerate(loops["function"]) if function in code}
    at = {sites["location"][row] for row in rows} | {loops["location"][row] for row in inside}
    for row in sorted(at - {NONE}, reverse=True):
        while row != NONE:
            at.add(row)
            row = locations["inlined_into"][row]
    zeros = dict.fromkeys(set(sites) - {"function", "ip"}, 0)
    keep_rows(sites, rows, {**zeros, "location": NONE})
    for name, value in (("region", NONE), ("a", 255), ("b", 255), ("clone_ip", 0)):
        sites[name] = [value] * len(sites["ip"])
    keep_rows(functions, code, {"name": NONE, "left": NONE})
    keep_rows(loops, inside, {"parent": NONE, "location": NONE})
    keep_rows(locations, at, {"function": NONE, "file": NONE, "line": 0, "inlined_into": NONE})
    named = set(functions["name"]) | set(functions["left"])
    named |= set(locations["function"]) | set(locations["file"])
    tables["strings"]["text"] = [t if n in named else "" for n, t in enumerate(strings)]
    for table in ("regions", "records", "ptwrites", "gathers"):
        tables.pop(table, None)


def segments(elf):
    """(virtual address, file offset, bytes in the file) of each PT_LOAD of a 64-bit little-endian ELF."""
    offset, entry_size, count = (
        struct.unpack_from("<Q", elf, 32)[0],
        *struct.unpack_from("<HH", elf, 54),
    )
    out = []
    for i in range(count):
        kind, _, at, vaddr, _, size = struct.unpack_from("<IIQQQQ", elf, offset + i * entry_size)
        if kind == 1:
            out.append((vaddr, at, size))
    return out


def ptwrite_length(code):
    """Length of the `ptwrite` that `code` starts with; 0 if it is another instruction."""
    at = 0
    if code[at] != 0xF3:
        return 0
    at += 1
    if 0x40 <= code[at] <= 0x4F:
        at += 1
    if code[at : at + 2] != b"\x0f\xae" or code[at + 2] >> 3 & 7 != 4:
        return 0
    mod, rm = code[at + 2] >> 6, code[at + 2] & 7
    length = at + 3
    if mod != 3:
        if rm == 4:
            length += 1
            if mod == 0 and code[at + 3] & 7 == 5:
                length += 4
        if mod == 0 and rm == 5:
            length += 4
        length += {0: 0, 1: 1, 2: 4}[mod]
    return length


def ptwrites_to_nops(path, sidecar_path, output):
    """Copies an instrumented file with each `ptwrite` that its sidecar lists made a NOP. Returns their number."""
    with open(path, "rb") as f:
        elf = bytearray(f.read())
    loads = segments(elf)
    addresses = Sidecar(sidecar_path).column("ptwrites", "ip")
    for address in addresses:
        inside = [
            at + address - vaddr for vaddr, at, size in loads if vaddr <= address < vaddr + size
        ]
        if not inside:
            raise ValueError(f"ptwrite at {address:#x} lies in no segment")
        length = ptwrite_length(elf[inside[0] : inside[0] + 16])
        if length not in NOPS:
            raise ValueError(f"no ptwrite at {address:#x}: {elf[inside[0] : inside[0] + 8].hex()}")
        elf[inside[0] : inside[0] + length] = NOPS[length]
    with open(output, "wb") as f:
        f.write(elf)
    os.chmod(output, 0o755)
    return len(addresses)


def program_to_nops(path):
    """Makes each `ptwrite` of an instrumented file, and of the libraries in PATH.libs, a NOP, in place. Returns their number in the file itself."""
    libs = path + ".libs"
    files = [path] + [
        os.path.join(libs, n)
        for n in (sorted(os.listdir(libs)) if os.path.isdir(libs) else [])
        if not n.endswith(".mgza")
    ]
    count = {}
    for file in (f for f in files if not os.path.islink(f)):
        changed = file + ".nop"
        count[file] = ptwrites_to_nops(file, file + ".mgza", changed)
        shutil.copymode(file, changed)
        os.replace(changed, file)
    return count[path]
