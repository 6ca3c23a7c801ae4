//! `objects.parquet` in.

use crate::data::columns::Frame;
use crate::data::object_map::{Instance, Object, Resolver};
use crate::input::quietly;
use std::collections::HashMap;
use std::path::Path;

/// Name of the file in a trace folder.
pub const OBJECTS_FILE: &str = mgz_annotations_schema::manifest::OBJECTS;

/// Reads the objects of a trace. `Ok(None)` if it has none; an error is a sentence for the user.
pub fn read(folder: &Path) -> Result<Option<Resolver>, String> {
    let path = folder.join(OBJECTS_FILE);
    let file = match std::fs::File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(format!(
                "{}: {error}; objects are not named",
                path.display()
            ));
        }
    };
    let frame = quietly(|| Frame::read_parquet(file))
        .and_then(|r| r)
        .and_then(|frame| instances(&frame))
        .map_err(|e| {
            format!(
                "{}: damaged ({e}); objects are not named, record again if they matter",
                path.display()
            )
        })?;
    Ok(Some(frame))
}

fn instances(frame: &Frame) -> Result<Resolver, String> {
    let (process, number) = (frame.numbers("process")?, frame.numbers("object")?);
    let (start, bytes) = (frame.numbers("start")?, frame.numbers("bytes")?);
    let (begin, end) = (frame.numbers("begin_ns")?, frame.numbers("end_ns")?);
    // Blocks that one row stands for; traces of older recorders have one in each.
    let times = if frame.has("times") {
        frame.numbers("times")?
    } else {
        vec![1; frame.height()]
    };
    let columns = ["kind", "name", "type", "module", "stack"].map(|name| frame.texts(name));
    let [kind, name, of_type, module, stack] = columns;
    let (kind, name, of_type, module, stack) = (kind?, name?, of_type?, module?, stack?);
    let mut objects = vec![Object {
        kind: "unknown".into(),
        name: "[no known object]".into(),
        ..Object::default()
    }];
    let mut known: HashMap<u64, u32> = HashMap::new();
    let mut by_content: HashMap<Object, u32> = HashMap::new();
    let mut list = Vec::with_capacity(process.len());
    for row in 0..frame.height() {
        let object = *known.entry(number[row]).or_insert_with(|| {
            let text = |column: &[Option<String>]| column[row].clone().unwrap_or_default();
            let object = Object {
                kind: text(kind),
                name: text(name),
                of_type: text(of_type),
                module: text(module),
                stack: text(stack),
            };
            *by_content.entry(object.clone()).or_insert_with(|| {
                objects.push(object);
                objects.len() as u32 - 1
            })
        });
        list.push(Instance {
            process: u32::try_from(process[row])
                .map_err(|_| "a process id is too large".to_string())?,
            start: start[row],
            bytes: bytes[row],
            begin_ns: begin[row],
            end_ns: end[row],
            object,
            times: times[row],
        });
    }
    Ok(Resolver::new(objects, &list))
}
