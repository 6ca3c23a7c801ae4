//! OpenTelemetry's profiles: `ProfilesData` of `profiles/v1development`, which has the same bytes as
//! the request of OTLP (`ExportProfilesServiceRequest`).
//!
//! Each kind of value is a profile of its own. All share one dictionary, whose entries are distinct,
//! and whose first entries are empty.

use crate::profile::{Frame, FrameChain, Profile, Sample};
use crate::protobuf::{Message, Table};
use crate::rfc3339::unix_seconds;
use std::collections::BTreeMap;

/// A link to no span: 16 bytes of a trace, 8 bytes of a span.
const NO_LINK: ([u8; 16], [u8; 8]) = ([0; 16], [0; 8]);

/// Value of an attribute.
enum Value<'a> {
    Text(&'a str),
    Number(i64),
    Flag(bool),
    Texts(Vec<&'a str>),
}

impl Value<'_> {
    /// `AnyValue`.
    fn encode(&self) -> Message {
        let message = Message::new();
        match self {
            Value::Text(text) => message.text(1, text),
            Value::Flag(flag) => message.number(2, (*flag).into()),
            Value::Number(number) => message.signed(3, *number),
            Value::Texts(texts) => {
                let of = |list: Message, text: &&str| list.message(1, Message::new().text(1, text));
                message.message(5, texts.iter().fold(Message::new(), of))
            }
        }
    }
}

/// `KeyValue`, the form of attributes outside of the dictionary.
fn key_value(key: &str, value: &Value) -> Message {
    Message::new().text(1, key).message(2, value.encode())
}

/// `ProfilesDictionary`.
struct Dictionary {
    mappings: Table,
    locations: Table,
    functions: Table,
    links: Table,
    texts: Table,
    attributes: Table,
    stacks: Table,
}

impl Dictionary {
    fn new() -> Dictionary {
        let link = Message::new().raw(1, &NO_LINK.0).raw(2, &NO_LINK.1);
        let empty = || Table::new(b"");
        Dictionary {
            mappings: empty(),
            locations: empty(),
            functions: empty(),
            links: Table::new(&link.bytes),
            texts: empty(),
            attributes: empty(),
            stacks: empty(),
        }
    }

    fn text(&mut self, text: &str) -> u64 {
        self.texts.get(text.as_bytes())
    }

    fn attribute(&mut self, key: &str, value: &Value) -> u64 {
        let message = Message::new()
            .number(1, self.text(key))
            .message(2, value.encode());
        self.attributes.get(&message.bytes)
    }

    fn attributes(&mut self, all: &[(&str, Value)]) -> Vec<u64> {
        let each = all.iter().map(|(key, value)| self.attribute(key, value));
        each.collect()
    }

    fn mapping(&mut self, profile: &Profile, module: &str) -> u64 {
        if module.is_empty() {
            return 0;
        }
        let file = profile.files.file(module);
        let mut attributes = vec![
            ("pprof.mapping.has_functions", Value::Flag(true)),
            ("pprof.mapping.has_filenames", Value::Flag(true)),
            ("pprof.mapping.has_line_numbers", Value::Flag(true)),
            ("pprof.mapping.has_inline_frames", Value::Flag(true)),
        ];
        if !file.build_id.is_empty() {
            let id = Value::Text(&file.build_id);
            attributes.push(("process.executable.build_id.gnu", id));
        }
        let attributes = self.attributes(&attributes);
        let message = Message::new()
            .number(4, self.text(&file.path))
            .packed(5, attributes);
        self.mappings.get(&message.bytes)
    }

    fn function(&mut self, frame: &Frame) -> u64 {
        let name = self.text(&frame.function);
        let message = Message::new()
            .number(1, name)
            .number(2, name)
            .number(3, self.text(&frame.file));
        self.functions.get(&message.bytes)
    }

    /// The location of frames, of which all except the last are inlined.
    fn location(&mut self, profile: &Profile, frames: &[Frame]) -> u64 {
        let Some(outermost) = frames.last() else {
            return 0;
        };
        let mut message = match self.mapping(profile, &outermost.module) {
            0 => Message::new(),
            mapping => Message::new().number(1, mapping),
        };
        for frame in frames {
            let line = Message::new()
                .number(1, self.function(frame))
                .number(2, frame.line.into());
            message = message.message(3, line);
        }
        let frame_type = match outermost.python {
            true => "cpython",
            false => "native",
        };
        // `[callers unknown]` has no kind of frame.
        if outermost.python || !outermost.module.is_empty() {
            let kind = self.attribute("profile.frame.type", &Value::Text(frame_type));
            message = message.packed(4, [kind]);
        }
        self.locations.get(&message.bytes)
    }

    fn stack(&mut self, profile: &Profile, place: &FrameChain) -> u64 {
        let mut locations = vec![self.location(profile, &place.frames)];
        for caller in &place.callers {
            locations.push(self.location(profile, std::slice::from_ref(caller)));
        }
        let message = Message::new().packed(1, locations);
        self.stacks.get(&message.bytes)
    }

    fn encode(&self) -> Message {
        let tables = [
            &self.mappings,
            &self.locations,
            &self.functions,
            &self.links,
            &self.texts,
            &self.attributes,
            &self.stacks,
        ];
        let numbered = (1..).zip(tables);
        numbered.fold(Message::new(), |message, (field, table)| {
            table.write_to(message, field)
        })
    }
}

/// Stack and attributes of samples.
type Identity = (u64, Vec<u64>);

/// The attributes of a sample, in the dictionary.
fn attributes(dictionary: &mut Dictionary, profile: &Profile, sample: &Sample) -> Vec<u64> {
    let thread = &profile.threads[sample.thread];
    let mut attributes = vec![
        ("process.pid", Value::Number(thread.process.into())),
        ("thread.id", Value::Number(thread.thread.into())),
        ("mgz.class", Value::Text(sample.class.name())),
        ("mgz.object", Value::Text(profile.object_name(sample))),
    ];
    if !thread.name.is_empty() {
        attributes.push(("thread.name", Value::Text(&thread.name)));
    }
    dictionary.attributes(&attributes)
}

/// `Profile` of one kind of value.
fn profile_of(
    dictionary: &mut Dictionary,
    profile: &Profile,
    (name, unit): &(String, &str),
    samples: impl Iterator<Item = (Identity, u64)>,
) -> Message {
    let kind = Message::new()
        .number(1, dictionary.text(name))
        .number(2, dictionary.text(unit));
    let mut message = Message::new().message(1, kind);
    for ((stack, attributes), value) in samples.filter(|sample| sample.1 > 0) {
        let sample = Message::new()
            .number(1, stack)
            .packed(2, attributes)
            .packed(4, [value]);
        message = message.message(2, sample);
    }
    if let Some(seconds) = unix_seconds(&profile.started) {
        message = message.fixed(3, seconds.saturating_mul(1_000_000_000));
    }
    if profile.seconds > 0.0 {
        message = message.number(4, (profile.seconds * 1e9) as u64);
    }
    let notes: Vec<&str> = profile.notes.iter().map(String::as_str).collect();
    if !notes.is_empty() {
        let notes = dictionary.attribute("pprof.profile.comment", &Value::Texts(notes));
        message = message.packed(11, [notes]);
    }
    message
}

/// `Resource`: the program, its command and its host.
fn resource(profile: &Profile, service: &str) -> Message {
    let program = profile.program();
    let command = profile.command.iter().map(String::as_str).collect();
    let mut attributes = vec![("service.name", Value::Text(service))];
    if !profile.host.is_empty() {
        attributes.push(("host.name", Value::Text(&profile.host)));
    }
    if !program.is_empty() {
        attributes.push(("process.executable.name", Value::Text(&program)));
        attributes.push(("process.command_args", Value::Texts(command)));
    }
    let path = profile.executable();
    if let Some(path) = &path {
        attributes.push(("process.executable.path", Value::Text(path)));
    }
    if let Some(rank) = profile.rank {
        attributes.push(("mgz.rank", Value::Number(rank.into())));
    }
    let each = attributes.iter();
    each.fold(Message::new(), |message, (key, value)| {
        message.message(1, key_value(key, value))
    })
}

/// The file. `service` is the name of the service; without it, it is that of the program.
pub fn encode_otlp(profile: &Profile, service: Option<&str>) -> Vec<u8> {
    let mut dictionary = Dictionary::new();
    let kinds = profile.value_kinds();
    let places = profile.places.iter();
    let stacks: Vec<u64> = places.map(|p| dictionary.stack(profile, p)).collect();
    // Samples of one identity are one sample.
    let mut samples: BTreeMap<Identity, Vec<u64>> = BTreeMap::new();
    for sample in &profile.samples {
        let attributes = attributes(&mut dictionary, profile, sample);
        let identity = (stacks[sample.place], attributes);
        let sums = samples
            .entry(identity)
            .or_insert_with(|| vec![0; kinds.len()]);
        for (sum, value) in sums.iter_mut().zip(profile.values(sample)) {
            *sum += value;
        }
    }
    let scope = Message::new()
        .text(1, "mgz")
        .text(2, env!("CARGO_PKG_VERSION"))
        .message(
            3,
            key_value("pprof.scope.default_sample_type", &Value::Text(&kinds[0].0)),
        );
    let mut of_scope = Message::new().message(1, scope);
    for (at, kind) in kinds.iter().enumerate() {
        // Servers may refuse profiles without samples.
        if samples.values().all(|sums| sums[at] == 0) {
            continue;
        }
        let values = samples.iter().map(|(key, sums)| (key.clone(), sums[at]));
        of_scope = of_scope.message(2, profile_of(&mut dictionary, profile, kind, values));
    }
    let program = profile.program();
    let service = service.unwrap_or(match program.as_str() {
        "" => "unknown_service",
        program => program,
    });
    let of_resource = Message::new()
        .message(1, resource(profile, service))
        .message(2, of_scope);
    Message::new()
        .message(1, of_resource)
        .message(2, dictionary.encode())
        .bytes
}

#[cfg(test)]
mod tests;
