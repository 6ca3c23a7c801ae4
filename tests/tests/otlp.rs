//! `mgz export --to otlp`: each kind of value has, by stack, the sums of pprof's file; the published
//! messages of OpenTelemetry read the same.

use flate2::read::GzDecoder;
use mgz_tests::programs::{self, Variant};
use mgz_tests::protobuf::{Field, fields, inside, number, packed};
use mgz_tests::session::{instrument, record_command};
use mgz_tests::tools::{self, LIMIT};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::Command;

const VARIANT: Variant = Variant {
    clang: false,
    opt: "2",
    pie: true,
};

/// Sums by kind of value, and by stack: `function:line` from the inside out, inlined functions too.
type Sums = BTreeMap<String, BTreeMap<String, u64>>;

/// Prints the sums of a file with the messages that OpenTelemetry publishes for Python, and the
/// build ids of mappings and the attributes of the resource.
const READER: &str = r#"
import json, sys
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as service
request = service.ExportProfilesServiceRequest()
request.ParseFromString(open(sys.argv[1], "rb").read())
known = request.dictionary
text = known.string_table
def stack(index):
    lines = [line for at in known.stack_table[index].location_indices for line in known.location_table[at].lines]
    return ";".join(f"{text[known.function_table[l.function_index].name_strindex]}:{l.line}" for l in lines)
def attribute(index):
    return text[known.attribute_table[index].key_strindex], known.attribute_table[index].value.string_value
[resource] = request.resource_profiles
[scope] = resource.scope_profiles
sums = {}
for profile in scope.profiles:
    of_kind = sums.setdefault(text[profile.sample_type.type_strindex], {})
    seen = set()
    for sample in profile.samples:
        identity = (sample.stack_index, tuple(sorted(sample.attribute_indices)))
        assert identity not in seen, identity
        seen.add(identity)
        of_kind[stack(sample.stack_index)] = of_kind.get(stack(sample.stack_index), 0) + sum(sample.values)
    assert profile.time_unix_nano > 1_500_000_000 * 10**9 and profile.duration_nano > 0
for table in [known.mapping_table, known.location_table, known.function_table, known.stack_table, known.attribute_table]:
    assert table[0].ByteSize() == 0
    entries = [entry.SerializeToString() for entry in table]
    assert len(entries) == len(set(entries))
mappings = {text[m.filename_strindex]: dict(map(attribute, m.attribute_indices)) for m in known.mapping_table[1:]}
print(json.dumps({"sums": sums, "mappings": mappings,
    "resource": {a.key: a.value.string_value for a in resource.resource.attributes}}))
"#;

fn strings(message: &[(u64, Field<'_>)], field: u64) -> Vec<String> {
    let texts = inside(message, field).into_iter();
    texts
        .map(|t| String::from_utf8(t.to_vec()).unwrap())
        .collect()
}

/// Function and line of each line of a location. `function` gives the name of a function.
fn lines(location: &[u8], field: u64, function: &dyn Fn(u64) -> String) -> String {
    let location = fields(location);
    let each = inside(&location, field).into_iter().map(|line| {
        let line = fields(line);
        let at = number(&line, 2).unwrap_or(0);
        format!("{}:{at}", function(number(&line, 1).unwrap()))
    });
    each.collect::<Vec<_>>().join(";")
}

fn sums_of_pprof(gzip: &[u8]) -> Sums {
    let mut bytes = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut bytes).unwrap();
    let profile = fields(&bytes);
    let texts = strings(&profile, 6);
    let by_id = |field: u64| -> BTreeMap<u64, &[u8]> {
        let all = inside(&profile, field).into_iter();
        all.map(|m| (number(&fields(m), 1).unwrap(), m)).collect()
    };
    let (functions, locations) = (by_id(5), by_id(4));
    let name = |id: u64| texts[number(&fields(functions[&id]), 2).unwrap() as usize].clone();
    let kinds: Vec<String> = (inside(&profile, 1).into_iter())
        .map(|kind| texts[number(&fields(kind), 1).unwrap() as usize].clone())
        .collect();
    let mut sums = Sums::new();
    for sample in inside(&profile, 2) {
        let sample = fields(sample);
        let stack = packed(inside(&sample, 1)[0]).into_iter();
        let stack: Vec<String> = stack.map(|l| lines(locations[&l], 4, &name)).collect();
        for (kind, value) in kinds.iter().zip(packed(inside(&sample, 2)[0])) {
            let of_kind = sums.entry(kind.clone()).or_default();
            if value > 0 {
                *of_kind.entry(stack.join(";")).or_default() += value;
            }
        }
    }
    sums
}

fn sums_of_otlp(bytes: &[u8]) -> Sums {
    let file = fields(bytes);
    let dictionary = fields(inside(&file, 2)[0]);
    let texts = strings(&dictionary, 5);
    let [locations, functions, stacks] = [2, 3, 7].map(|table| inside(&dictionary, table));
    let name =
        |at: u64| texts[number(&fields(functions[at as usize]), 1).unwrap() as usize].clone();
    let resource = fields(inside(&file, 1)[0]);
    let scope = fields(inside(&resource, 2)[0]);
    let mut sums = Sums::new();
    for profile in inside(&scope, 2) {
        let profile = fields(profile);
        let kind = number(&fields(inside(&profile, 1)[0]), 1).unwrap();
        let of_kind = sums.entry(texts[kind as usize].clone()).or_default();
        for sample in inside(&profile, 2) {
            let sample = fields(sample);
            let stack = fields(stacks[number(&sample, 1).unwrap() as usize]);
            let each = packed(inside(&stack, 1)[0]).into_iter();
            let each: Vec<String> = each
                .map(|l| lines(locations[l as usize], 3, &name))
                .collect();
            let value: u64 = packed(inside(&sample, 4)[0]).into_iter().sum();
            *of_kind.entry(each.join(";")).or_default() += value;
        }
    }
    sums
}

fn export(trace: &Path, to: &str) -> Vec<u8> {
    let mut export = tools::tool("mgz");
    export.arg("export").arg(trace);
    export.args(["--to", to, "--misses", "--service", "shop"]);
    tools::succeed(&mut export, LIMIT).unwrap().stdout
}

#[test]
fn the_sums_by_stack_are_those_of_pprof() {
    let dir = tempfile::tempdir().unwrap();
    let built = programs::build("callers", VARIANT, &["-g"], dir.path());
    let built = built.unwrap().unwrap();
    let app = instrument(&built, "soft", &["--for", "burst"]).unwrap();
    for (name, options, count) in [
        ("burst", &["--mode", "burst"][..], "400000"),
        ("full", &["--mode", "full"], "200"),
    ] {
        let trace = dir.path().join(name);
        let mut record = record_command(options, &trace, &app.path, &["split", count]);
        tools::succeed(&mut record, LIMIT).unwrap();
        let (pprof, otlp) = (export(&trace, "pprof"), export(&trace, "otlp"));
        let mut expected = sums_of_pprof(&pprof);
        assert!(expected.contains_key("misses_L1"));
        // Profiles without samples are left out.
        expected.retain(|_, by_stack| !by_stack.is_empty());
        assert!(expected["loads"].values().sum::<u64>() > 1000);
        assert!(expected.contains_key("reuses"));
        assert_eq!(sums_of_otlp(&otlp), expected, "{name}");
        if name == "burst" {
            assert!(expected["time"].values().sum::<u64>() > 0);
            let callers = ["kernel:", ";often:", ";main:"];
            let has = |stack: &String| callers.iter().all(|c| stack.contains(c));
            assert!(expected["loads"].keys().any(has), "{expected:?}");
        }
        let file = dir.path().join("file.otlp");
        std::fs::write(&file, &otlp).unwrap();
        read_by_published_messages(&file, &expected, &built);
    }
}

fn read_by_published_messages(file: &Path, expected: &Sums, program: &Path) {
    let mut importable = Command::new("python3");
    importable.args([
        "-c",
        "import opentelemetry.proto.profiles.v1development.profiles_pb2",
    ]);
    if !tools::run_limited(&mut importable, LIMIT).is_ok_and(|o| o.status.success()) {
        tools::skip(
            "Python's opentelemetry-proto is not installed (pip install opentelemetry-proto)",
        );
        return;
    }
    let mut reader = Command::new("python3");
    reader.args(["-c", READER]).arg(file);
    let read = tools::succeed(&mut reader, LIMIT).unwrap();
    let read: Value = serde_json::from_slice(&read.stdout).unwrap();
    let sums: Sums = serde_json::from_value(read["sums"].clone()).unwrap();
    assert_eq!(&sums, expected);
    assert_eq!(read["resource"]["service.name"], "shop");
    let name = program.file_name().unwrap().to_str().unwrap();
    assert_eq!(read["resource"]["process.executable.name"], name);
    let mapping = &read["mappings"][program.to_str().unwrap()];
    let id = mapping["process.executable.build_id.gnu"].as_str();
    assert!(id.is_some_and(|id| id.len() == 40), "{read}");
}
