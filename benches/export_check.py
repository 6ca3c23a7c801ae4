#!/usr/bin/env python3
"""Opens what `mgz export` writes with the tools that it is for: benches/export_check.py TRACE [--bin DIR] [--speedscope DIR]

TRACE is a trace folder. Checks that the sum of the loads is that of mgz-analyze, in
- pprof, decoded by protobuf with the fields of profile.proto (PyPI: protobuf),
- perfetto, by its published messages (PyPI: perfetto), or by the trace_processor that --trace-processor names,
- callgrind, by callgrind_annotate,
- DHAT, by its viewer's code in node,
- ChampSim (complete traces), by the layout that its header describes,
- SARIF, by its schema, if --sarif-schema names it (PyPI: jsonschema),
- speedscope, by the schema of its format, if --speedscope names a folder in which `npm install speedscope` was run.
Exit status 1 if a sum differs. What is not installed is said.
"""

import argparse
import glob
import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def pprof_messages():
    """The messages of profile.proto, from its description."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = {"int64": 3, "uint64": 4, "string": 9, "bool": 8}
    messages = {
        "ValueType": [("type", 1, "int64"), ("unit", 2, "int64")],
        "Label": [
            ("key", 1, "int64"),
            ("str", 2, "int64"),
            ("num", 3, "int64"),
            ("num_unit", 4, "int64"),
        ],
        "Sample": [("location_id", 1, "uint64*"), ("value", 2, "int64*"), ("label", 3, "Label*")],
        "Mapping": [
            ("id", 1, "uint64"),
            ("memory_start", 2, "uint64"),
            ("memory_limit", 3, "uint64"),
            ("file_offset", 4, "uint64"),
            ("filename", 5, "int64"),
            ("build_id", 6, "int64"),
            ("has_functions", 7, "bool"),
            ("has_filenames", 8, "bool"),
            ("has_line_numbers", 9, "bool"),
            ("has_inline_frames", 10, "bool"),
        ],
        "Line": [("function_id", 1, "uint64"), ("line", 2, "int64"), ("column", 3, "int64")],
        "Location": [
            ("id", 1, "uint64"),
            ("mapping_id", 2, "uint64"),
            ("address", 3, "uint64"),
            ("line", 4, "Line*"),
            ("is_folded", 5, "bool"),
        ],
        "Function": [
            ("id", 1, "uint64"),
            ("name", 2, "int64"),
            ("system_name", 3, "int64"),
            ("filename", 4, "int64"),
            ("start_line", 5, "int64"),
        ],
        "Profile": [
            ("sample_type", 1, "ValueType*"),
            ("sample", 2, "Sample*"),
            ("mapping", 3, "Mapping*"),
            ("location", 4, "Location*"),
            ("function", 5, "Function*"),
            ("string_table", 6, "string*"),
            ("time_nanos", 9, "int64"),
            ("duration_nanos", 10, "int64"),
            ("period_type", 11, "ValueType"),
            ("period", 12, "int64"),
            ("comment", 13, "int64*"),
            ("default_sample_type", 14, "int64"),
        ],
    }
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="p", syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            many, kind = kind.endswith("*"), kind.rstrip("*")
            of = message.field.add(name=field, number=number, label=3 if many else 1)
            if kind in kinds:
                of.type = kinds[kind]
            else:
                of.type, of.type_name = 11, f".p.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Profile"))


def pprof(path, _):
    profile = pprof_messages()()
    with gzip.open(path) as file:
        profile.ParseFromString(file.read())
    texts = profile.string_table
    assert texts[0] == "" and texts[profile.sample_type[0].type] == "loads"
    locations = {location.id: location for location in profile.location}
    functions = {function.id: function for function in profile.function}
    mappings = {mapping.id for mapping in profile.mapping}
    for sample in profile.sample:
        assert len(sample.value) == len(profile.sample_type)
        for location in sample.location_id:
            assert locations[location].mapping_id in mappings
            assert all(line.function_id in functions for line in locations[location].line)
    return sum(sample.value[0] for sample in profile.sample)


def perfetto_messages(path):
    """The loads of all slices, by the published messages: where trace_processor cannot be had."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace, loads, tracks = Trace(), 0, set()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            tracks.add(packet.track_descriptor.uuid)
        if packet.HasField("track_event"):
            event = packet.track_event
            assert event.track_uuid in tracks
            loads += sum(a.uint_value for a in event.debug_annotations if a.name == "loads")
    return loads


def perfetto(path, options):
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    if not options.trace_processor:
        print("perfetto: without --trace-processor only the messages are decoded")
        return perfetto_messages(path)
    config = TraceProcessorConfig(bin_path=options.trace_processor)
    with TraceProcessor(trace=path, config=config) as processor:
        rows = processor.query(
            "SELECT sum(a.int_value) AS loads FROM slice s JOIN args a USING (arg_set_id) WHERE a.key = 'debug.loads'"
        )
        return next(iter(rows)).loads


def callgrind(path, _):
    text = subprocess.run(
        ["callgrind_annotate", path], check=True, capture_output=True, text=True
    ).stdout
    line = next(line for line in text.splitlines() if "PROGRAM TOTALS" in line)
    return int(re.match(r"[\d,]+", line.strip()).group().replace(",", ""))


IMPORTER = """
const fs = require('fs');
const profile = JSON.parse(fs.readFileSync(process.argv[1], 'utf8'));
const Ajv = require('ajv');
const schema = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const check = new Ajv({strict: false}).compile(schema);
if (!check(profile)) { console.error(check.errors); process.exit(1); }
let sum = 0;
for (const p of profile.profiles) p.weights.forEach(w => sum += w);
console.log(sum);
"""


def speedscope(path, options):
    if not options.speedscope:
        raise FileNotFoundError("--speedscope is not given")
    package = os.path.join(options.speedscope, "node_modules", "speedscope", "dist", "release")
    schema = os.path.join(package, "file-format-schema.json")
    done = subprocess.run(
        ["node", "-e", IMPORTER, path, schema],
        cwd=options.speedscope,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return int(done.stdout)


VIEWER = """
const fs = require('fs'), vm = require('vm');
const source = fs.readFileSync(process.argv[1], 'utf8') + `
;globalThis.open = text => {
    gData = JSON.parse(text);
    gSelect = {selectedIndex: 0, childNodes: gSelectData.map(() => ({}))};
    buildTree();
    return gRoot;
};`;
const context = {console, performance, document: {}, window: {}};
vm.createContext(context);
vm.runInContext(source, context);
console.log(context.open(fs.readFileSync(process.argv[2], 'utf8'))._readsBytes);
"""


def dhat(path, _):
    """The bytes that DHAT's viewer has read, against those of the rows of heap blocks."""
    viewers = glob.glob("/usr/lib*/valgrind/dh_view.js")
    if not viewers:
        raise FileNotFoundError("dh_view.js of valgrind")
    done = subprocess.run(["node", "-e", VIEWER, viewers[0], path], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    with open(path) as file:
        assert int(done.stdout) == sum(point["rb"] for point in json.load(file)["pps"])
    return None


def champsim(path, _):
    """Loads of ChampSim's traces: records of 64 bytes, `input_instr` of its inc/trace_instruction.h."""
    record = struct.Struct("<Q??2B4B2Q4Q")
    assert record.size == 64
    loads = 0
    for file in glob.glob(path + "*"):
        with open(file, "rb") as f:
            data = f.read()
        assert data and len(data) % record.size == 0
        for ip, is_branch, taken, *rest in record.iter_unpack(data):
            registers, stored, loaded = rest[:6], rest[6:8], rest[8:]
            assert ip and not is_branch and not taken and not any(registers)
            # One access each, in the first place; 0 is none.
            assert not any(stored[1:]) and not any(loaded[1:])
            assert bool(stored[0]) != bool(loaded[0])
            loads += bool(loaded[0])
    return loads


def sarif(path, options):
    """By the schema that code hosts check it with."""
    if not options.sarif_schema:
        raise FileNotFoundError("--sarif-schema FILE (npm: @microsoft/sarif-multitool-linux)")
    import jsonschema

    with open(options.sarif_schema, encoding="utf-8-sig") as schema, open(path) as file:
        jsonschema.validate(json.load(file), json.load(schema))
    return None


CHECKS = {
    "champsim": champsim,
    "sarif": sarif,
    "pprof": pprof,
    "perfetto": perfetto,
    "callgrind": callgrind,
    "speedscope": speedscope,
    "dhat": dhat,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace")
    parser.add_argument("--bin", default=os.path.join(ROOT, "target/release"))
    parser.add_argument("--speedscope", default="")
    parser.add_argument("--trace-processor", default="")
    parser.add_argument("--sarif-schema", default="")
    options = parser.parse_args()
    analyze = os.path.join(options.bin, "mgz-analyze")
    text = subprocess.run(
        [analyze, options.trace, "--format", "json"], check=True, capture_output=True
    ).stdout
    summary = json.loads(text)["summary"]
    want = summary["A"] + summary["A_const"]
    folder, failed = tempfile.mkdtemp(), 0
    for name, check in CHECKS.items():
        path = os.path.join(folder, name)
        command = [analyze, "export", options.trace, "--to", name, "-o", path]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            print(f"{name}: SKIPPED: {made.stderr.strip().splitlines()[-1]}")
            continue
        try:
            got = check(path, options)
        except (ImportError, FileNotFoundError, subprocess.CalledProcessError) as error:
            print(f"{name}: SKIPPED: {error}")
            continue
        if got is None:
            print(f"{name}: opened")
            continue
        # Accesses are rows: implied Constant loads have no address.
        expected = summary["A"] if name == "champsim" else want
        failed += got != expected
        print(f"{name}: {got} loads, {'equal' if got == expected else f'DIFFERS from {expected}'}")
    shutil.rmtree(folder)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
