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
        return struct.unpack(f"<{c['rows']}{WIDTHS[c['kind']]}", data)


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
