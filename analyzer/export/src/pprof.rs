//! pprof's `profile.proto`, gzipped.

use crate::profile::{Frame, Profile, Sample};
use crate::protobuf::{Message, Table};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::HashMap;
use std::io::Write;

/// The messages of the file.
struct Writer<'a> {
    profile: &'a Profile,
    /// Frames of callers. Their locations are numbered after those of the places.
    callers: Vec<&'a Frame>,
    caller_ids: HashMap<&'a Frame, u64>,
    texts: Table,
    out: Message,
}

/// The file.
pub fn encode_pprof(profile: &Profile) -> std::io::Result<Vec<u8>> {
    let (mut callers, mut caller_ids) = (Vec::new(), HashMap::new());
    for frame in profile.places.iter().flat_map(|p| &p.callers) {
        let next = (profile.places.len() + callers.len()) as u64 + 1;
        if *caller_ids.entry(frame).or_insert(next) == next {
            callers.push(frame);
        }
    }
    let mut writer = Writer {
        profile,
        callers,
        caller_ids,
        texts: Table::new(b""),
        out: Message::new(),
    };
    let first = writer.kinds();
    let keys =
        ["class", "object", "thread", "process", "rank"].map(|k| writer.texts.get(k.as_bytes()));
    for sample in &profile.samples {
        writer.sample(sample, keys);
    }
    writer.places();
    writer.end(&first);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&writer.out.bytes)?;
    gzip.finish()
}

impl Writer<'_> {
    fn push(&mut self, field: u32, message: Message) {
        self.out = std::mem::take(&mut self.out).message(field, message);
    }

    /// Writes the kinds of values, and returns the name of the first one.
    fn kinds(&mut self) -> String {
        let mut kinds = self.profile.value_kinds();
        for (name, unit) in &kinds {
            let kind = Message::new()
                .number(1, self.texts.get(name.as_bytes()))
                .number(2, self.texts.get(unit.as_bytes()));
            self.push(1, kind);
        }
        kinds.swap_remove(0).0
    }

    /// Writes a sample. `keys`: names of its labels.
    fn sample(&mut self, sample: &Sample, keys: [u64; 5]) {
        let profile = self.profile;
        let values = profile.values(sample);
        let thread = &profile.threads[sample.thread];
        let mut label = |key: u64, text: &str| {
            Message::new()
                .number(1, key)
                .number(2, self.texts.get(text.as_bytes()))
        };
        let class = label(keys[0], sample.class.name());
        let object = label(keys[1], profile.object_name(sample));
        let name = match thread.name.is_empty() {
            true => thread.thread.to_string(),
            false => format!("{} {}", thread.thread, thread.name),
        };
        let name = label(keys[2], &name);
        let number =
            |key: u64, value: u32| Message::new().number(1, key).number(3, u64::from(value));
        let callers = profile.places[sample.place].callers.iter();
        let stack =
            std::iter::once(sample.place as u64 + 1).chain(callers.map(|c| self.caller_ids[c]));
        let mut message = Message::new()
            .packed(1, stack)
            .packed(2, values)
            .message(3, class)
            .message(3, object)
            .message(3, name)
            .message(3, number(keys[3], thread.process));
        if let Some(rank) = profile.rank {
            message = message.message(3, number(keys[4], rank));
        }
        self.push(2, message);
    }

    /// Writes modules, places, callers and functions.
    fn places(&mut self) {
        let profile = self.profile;
        let mut modules: Vec<&str> = Vec::new();
        let mut functions: HashMap<(&str, &str), u64> = HashMap::new();
        let (mut locations, mut named) = (Message::new(), Message::new());
        let places = profile.places.iter().map(|p| &p.frames[..]);
        let callers: Vec<&Frame> = self.callers.clone();
        let callers = callers.iter().map(|&c| std::slice::from_ref(c));
        for (at, frames) in places.chain(callers).enumerate() {
            let module = frames[0].module.as_str();
            let known = modules.iter().position(|m| *m == module);
            let mapping = known.unwrap_or_else(|| {
                modules.push(module);
                modules.len() - 1
            });
            let mut location = Message::new()
                .number(1, at as u64 + 1)
                .number(2, mapping as u64 + 1);
            for frame in frames {
                let next = functions.len() as u64 + 1;
                let id = *functions
                    .entry((&frame.function, &frame.file))
                    .or_insert(next);
                if id == next {
                    let name = self.texts.get(frame.function.as_bytes());
                    let function = Message::new()
                        .number(1, id)
                        .number(2, name)
                        .number(3, name)
                        .number(4, self.texts.get(frame.file.as_bytes()));
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
            let file = profile.files.file(module);
            let mapping = Message::new()
                .number(1, at as u64 + 1)
                .number(5, self.texts.get(file.path.as_bytes()))
                .number(6, self.texts.get(file.build_id.as_bytes()));
            let known = [7, 8, 9, 10]
                .into_iter()
                .fold(mapping, |m, field| m.number(field, 1));
            self.push(3, known);
        }
        self.out.bytes.extend(locations.bytes);
        self.out.bytes.extend(named.bytes);
    }

    /// Writes comments, texts and the default kind.
    fn end(&mut self, default: &str) {
        let texts = &mut self.texts;
        let command = self.profile.command_line();
        let comments = self.profile.notes.iter().chain([&command]);
        let comments: Vec<u64> = comments.map(|t| texts.get(t.as_bytes())).collect();
        let (loads, default) = (texts.get(b"loads"), texts.get(default.as_bytes()));
        let count = texts.get(b"count");
        let out = std::mem::take(&mut self.out);
        self.out = texts
            .write_to(out, 6)
            .message(11, Message::new().number(1, loads).number(2, count))
            .number(12, 1)
            .packed(13, comments)
            .number(14, default);
    }
}
