//! pprof's `profile.proto`, gzipped.

use crate::export::profile::{CLASSES, Profile};
use crate::export::protobuf::Message;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::HashMap;
use std::io::Write;

/// Texts, each once; the first is empty.
struct Texts {
    index: HashMap<String, u64>,
    list: Vec<String>,
}

impl Texts {
    fn new() -> Texts {
        Texts {
            index: HashMap::from([(String::new(), 0)]),
            list: vec![String::new()],
        }
    }

    fn get(&mut self, text: &str) -> u64 {
        if let Some(&known) = self.index.get(text) {
            return known;
        }
        let next = self.list.len() as u64;
        self.list.push(text.into());
        self.index.insert(text.into(), next);
        next
    }
}

/// The file.
pub fn write(profile: &Profile) -> std::io::Result<Vec<u8>> {
    let mut texts = Texts::new();
    let mut out = Message::new();
    let mut kinds = vec![("loads".to_string(), "count")];
    kinds.extend(
        profile
            .misses
            .iter()
            .map(|m| (format!("misses_{}", m.0), "count")),
    );
    kinds.push(("footprint".into(), "addresses"));
    kinds.push(("reuses".into(), "count"));
    if profile.load_ns.is_some() {
        kinds.push(("time".into(), "nanoseconds"));
    }
    for (name, unit) in &kinds {
        let kind = Message::new()
            .number(1, texts.get(name))
            .number(2, texts.get(unit));
        out = out.message(1, kind);
    }
    let keys = ["class", "object", "thread", "process", "rank"].map(|k| texts.get(k));
    for sample in &profile.samples {
        let loads = sample.loads as f64;
        let mut values = vec![sample.loads];
        values.extend(
            profile
                .misses
                .iter()
                .map(|m| (m.1[sample.place] * loads).round() as u64),
        );
        values.push(sample.footprint);
        values.push(sample.reuses);
        values.extend(
            profile
                .load_ns
                .iter()
                .map(|ns| (ns[sample.place] * loads).round() as u64),
        );
        let thread = &profile.threads[sample.thread];
        let mut label =
            |key: u64, text: &str| Message::new().number(1, key).number(2, texts.get(text));
        let class = label(
            keys[0],
            CLASSES.get(sample.class as usize).unwrap_or(&"store"),
        );
        let object = &profile.objects[sample.object as usize];
        let object = label(
            keys[1],
            if object.name.is_empty() {
                &object.kind
            } else {
                &object.name
            },
        );
        let name = match thread.name.is_empty() {
            true => thread.thread.to_string(),
            false => format!("{} {}", thread.thread, thread.name),
        };
        let name = label(keys[2], &name);
        let mut message = Message::new()
            .packed(1, [sample.place as u64 + 1])
            .packed(2, values)
            .message(3, class)
            .message(3, object)
            .message(3, name)
            .message(
                3,
                Message::new()
                    .number(1, keys[3])
                    .number(3, u64::from(thread.process)),
            );
        if let Some(rank) = profile.rank {
            message = message.message(
                3,
                Message::new().number(1, keys[4]).number(3, u64::from(rank)),
            );
        }
        out = out.message(2, message);
    }
    let mut modules: Vec<&str> = Vec::new();
    let mut functions: HashMap<(&str, &str), u64> = HashMap::new();
    let (mut locations, mut named) = (Message::new(), Message::new());
    for (at, place) in profile.places.iter().enumerate() {
        let module = place.frames[0].module.as_str();
        let mapping = modules
            .iter()
            .position(|m| *m == module)
            .unwrap_or_else(|| {
                modules.push(module);
                modules.len() - 1
            }) as u64
            + 1;
        let mut location = Message::new().number(1, at as u64 + 1).number(2, mapping);
        for frame in &place.frames {
            let next = functions.len() as u64 + 1;
            let id = *functions
                .entry((&frame.function, &frame.file))
                .or_insert(next);
            if id == next {
                let (name, file) = (texts.get(&frame.function), texts.get(&frame.file));
                let function = Message::new()
                    .number(1, id)
                    .number(2, name)
                    .number(3, name)
                    .number(4, file);
                named = named.message(5, function);
            }
            let line = Message::new()
                .number(1, id)
                .signed(2, i64::from(frame.line));
            location = location.message(4, line);
        }
        locations = locations.message(4, location);
    }
    for (at, module) in modules.iter().enumerate() {
        let mapping = Message::new()
            .number(1, at as u64 + 1)
            .number(5, texts.get(module));
        let known = [7, 8, 9, 10]
            .into_iter()
            .fold(mapping, |m, field| m.number(field, 1));
        out = out.message(3, known);
    }
    out.bytes.extend(locations.bytes);
    out.bytes.extend(named.bytes);
    let comments = profile
        .notes
        .iter()
        .chain([&profile.command])
        .map(|t| texts.get(t));
    let comments: Vec<u64> = comments.collect();
    let (loads, default) = (texts.get("loads"), texts.get(&kinds[0].0));
    let count = texts.get("count");
    for text in &texts.list {
        out = out.text(6, text);
    }
    out = out
        .message(11, Message::new().number(1, loads).number(2, count))
        .number(12, 1)
        .packed(13, comments)
        .number(14, default);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&out.bytes)?;
    gzip.finish()
}
