//! A profile is decoded from the bytes of the wire and compared with its source.

use super::*;
use crate::module_files::ModuleFiles;
use crate::protobuf::{FieldValue, read_fields};
use mgz_analyzer::data::group::AccessClass;
use mgz_analyzer::data::object_map::Object;
use std::collections::BTreeSet;

/// A message: its fields in order.
struct Decoded<'a>(Vec<(u64, FieldValue<'a>)>);

impl<'a> Decoded<'a> {
    fn of(bytes: &'a [u8]) -> Decoded<'a> {
        let mut fields = Vec::new();
        read_fields(bytes, |number, value| fields.push((number, value))).unwrap();
        Decoded(fields)
    }

    fn bytes(&self, field: u64) -> Vec<&'a [u8]> {
        let of = self.0.iter().filter(|f| f.0 == field);
        of.map(|(_, value)| match value {
            FieldValue::Bytes(bytes) => *bytes,
            FieldValue::Number(_) => panic!("field {field} is a number"),
        })
        .collect()
    }

    fn messages(&self, field: u64) -> Vec<Decoded<'a>> {
        self.bytes(field).into_iter().map(Decoded::of).collect()
    }

    fn one(&self, field: u64) -> Decoded<'a> {
        let mut all = self.messages(field);
        assert_eq!(all.len(), 1, "field {field}");
        all.remove(0)
    }

    fn texts(&self, field: u64) -> Vec<String> {
        let all = self.bytes(field).into_iter();
        all.map(|t| String::from_utf8(t.to_vec()).unwrap())
            .collect()
    }

    /// 0 if it is absent.
    fn number(&self, field: u64) -> u64 {
        let found = self.0.iter().rfind(|f| f.0 == field);
        found.map_or(0, |(_, value)| match value {
            FieldValue::Number(number) => *number,
            FieldValue::Bytes(_) => panic!("field {field} is no number"),
        })
    }

    fn packed(&self, field: u64) -> Vec<u64> {
        let mut numbers = Vec::new();
        for mut bytes in self.bytes(field) {
            while !bytes.is_empty() {
                let next = || bytes.split_off_first().copied();
                numbers.push(mgz_annotations_schema::leb128::decode(u64::BITS, next).unwrap());
            }
        }
        numbers
    }
}

fn frame(function: &str, module: &str, line: u32) -> Frame {
    Frame {
        function: function.into(),
        module: module.into(),
        file: if module.is_empty() { "" } else { "/src/app.c" }.into(),
        line,
        python: function.ends_with(".py"),
    }
}

fn place(line: u32, caller: &str) -> FrameChain {
    FrameChain {
        frames: vec![frame("inlined", "app", line), frame("kernel", "app", 7)],
        function: "kernel".into(),
        callers: vec![
            frame(caller, "app", 30),
            frame("train.py", "libpython3.so", 4),
            frame("[callers unknown]", "", 0),
        ],
    }
}

fn sample(place: usize, object: u32, thread: usize, loads: u64) -> Sample {
    Sample {
        place,
        class: AccessClass::Irregular,
        object,
        thread,
        loads,
        bytes: 8 * loads,
        footprint: loads / 2,
        reuses: loads % 2,
    }
}

fn profile() -> Profile {
    let object = |kind: &str, name: &str| Object {
        kind: kind.into(),
        name: name.into(),
        ..Object::default()
    };
    let thread = |thread: u32, name: &str| crate::profile::ThreadName {
        process: 11,
        thread,
        name: name.into(),
    };
    Profile {
        command: vec!["/bin/app".into(), "-n".into()],
        host: "box".into(),
        started: "2000-02-29T00:00:00Z".into(),
        seconds: 1.5,
        files: ModuleFiles::default(),
        places: vec![place(3, "often"), place(3, "seldom"), place(9, "often")],
        objects: vec![object("unknown", ""), object("heap", "block")],
        threads: vec![thread(11, ""), thread(12, "worker")],
        samples: vec![
            sample(0, 0, 0, 100),
            sample(1, 1, 0, 11),
            sample(1, 1, 1, 7),
            sample(2, 1, 1, 5),
            // The same identity as the first.
            sample(0, 0, 0, 1),
        ],
        misses: vec![("L1".into(), vec![0.5, 0.1, 0.0])],
        load_ns: Some(vec![2.0, 10.0, 1.0]),
        notes: vec!["a note".into(), "another".into()],
        ..Profile::default()
    }
}

/// Function and line of each frame of a stack, inlined ones joined by `<`.
fn stack_text(dictionary: &Decoded, texts: &[String], stack: u64) -> String {
    let text = |index: u64| texts[index as usize].as_str();
    let stack = &dictionary.messages(7)[stack as usize];
    let of_location = |at: u64| {
        let location = &dictionary.messages(2)[at as usize];
        let lines = location.messages(3);
        let each = lines.iter().map(|line| {
            let function = &dictionary.messages(3)[line.number(1) as usize];
            format!("{}:{}", text(function.number(1)), line.number(2))
        });
        each.collect::<Vec<_>>().join("<")
    };
    let all: Vec<String> = stack.packed(1).into_iter().map(of_location).collect();
    all.join(";")
}

#[test]
fn the_file_has_the_values_of_the_profile_by_stack() {
    let bytes = encode_otlp(&profile(), Some("shop"));
    let file = Decoded::of(&bytes);
    let dictionary = file.one(2);
    let texts = dictionary.texts(5);
    let profiles = file.one(1).one(2).messages(2);
    let mut found = Vec::new();
    for of_kind in &profiles {
        let name = &texts[of_kind.one(1).number(1) as usize];
        let mut by_stack: BTreeMap<String, u64> = BTreeMap::new();
        for sample in of_kind.messages(2) {
            let stack = stack_text(&dictionary, &texts, sample.number(1));
            assert_eq!(sample.packed(4).len(), 1);
            *by_stack.entry(stack).or_default() += sample.packed(4)[0];
        }
        let values: Vec<u64> = by_stack.values().copied().collect();
        found.push((
            name.as_str(),
            by_stack.keys().cloned().collect::<Vec<_>>(),
            values,
        ));
        assert_eq!(of_kind.number(3), 951_782_400_000_000_000);
        assert_eq!(of_kind.number(4), 1_500_000_000);
    }
    let stack = |line: u32, caller: &str| {
        format!("inlined:{line}<kernel:7;{caller}:30;train.py:4;[callers unknown]:0")
    };
    let all = [stack(3, "often"), stack(3, "seldom"), stack(9, "often")];
    assert_eq!(
        found,
        [
            ("loads", all.to_vec(), vec![101, 18, 5]),
            // Samples of 100 and 1, and of 11 and 7. Zeros are left out.
            ("misses_L1", all[..2].to_vec(), vec![51, 2]),
            ("footprint", all.to_vec(), vec![50, 8, 2]),
            ("reuses", all.to_vec(), vec![1, 2, 1]),
            ("time", all.to_vec(), vec![202, 180, 5]),
        ]
    );
}

#[test]
fn dictionary_entries_are_distinct_and_the_first_is_empty() {
    let bytes = encode_otlp(&profile(), None);
    let dictionary = Decoded::of(&bytes).one(2);
    for table in [1, 2, 3, 4, 5, 6, 7] {
        let entries = dictionary.bytes(table);
        let first: &[u8] = match table {
            4 => &[&[0x0a, 16][..], &[0; 16], &[0x12, 8], &[0; 8]].concat(),
            _ => b"",
        };
        assert_eq!(entries[0], first, "table {table}");
        let distinct: BTreeSet<&[u8]> = entries.iter().copied().collect();
        assert_eq!(distinct.len(), entries.len(), "table {table}");
    }
}

#[test]
fn attributes_name_process_thread_object_and_frame() {
    let mut profile = profile();
    let attribute_texts = |bytes: &[u8]| {
        let file = Decoded::of(bytes);
        let dictionary = file.one(2);
        let texts = dictionary.texts(5);
        let value = |value: Decoded| match value.0.first() {
            Some((1, FieldValue::Bytes(text))) => String::from_utf8(text.to_vec()).unwrap(),
            Some((_, FieldValue::Number(number))) => number.to_string(),
            Some((5, _)) => format!("{} texts", value.one(5).bytes(1).len()),
            other => panic!("{other:?}"),
        };
        let table = dictionary.messages(6).into_iter().skip(1);
        let of_samples: Vec<String> = table
            .map(|a| format!("{}={}", texts[a.number(1) as usize], value(a.one(2))))
            .collect();
        let of_resource: Vec<String> = (file.one(1).one(1).messages(1).into_iter())
            .map(|a| format!("{}={}", a.texts(1)[0], value(a.one(2))))
            .collect();
        (of_samples, of_resource)
    };
    let (of_samples, of_resource) = attribute_texts(&encode_otlp(&profile, None));
    for attribute in [
        "process.pid=11",
        "thread.id=12",
        "thread.name=worker",
        "mgz.class=irregular",
        "mgz.object=block",
        "mgz.object=unknown",
        "profile.frame.type=native",
        "profile.frame.type=cpython",
        "pprof.profile.comment=2 texts",
    ] {
        assert!(of_samples.iter().any(|a| a == attribute), "{of_samples:?}");
    }
    assert_eq!(
        of_resource,
        [
            "service.name=app",
            "host.name=box",
            "process.executable.name=app",
            "process.command_args=2 texts",
            "process.executable.path=/bin/app",
        ]
    );
    profile.command.clear();
    profile.rank = Some(3);
    let (_, of_resource) = attribute_texts(&encode_otlp(&profile, None));
    assert_eq!(
        of_resource,
        [
            "service.name=unknown_service",
            "host.name=box",
            "mgz.rank=3"
        ]
    );
}
