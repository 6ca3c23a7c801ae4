//! `objects.parquet` in.

use crate::data::frame;
use crate::data::object_map::{Instance, Object, Resolver};
use crate::input::quietly;
use polars::prelude::DataFrame;
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
    let found = quietly(|| frame::read_parquet(file))
        .and_then(|r| r)
        .and_then(|table| instances(&table))
        .map_err(|e| {
            format!(
                "{}: damaged ({e}); objects are not named, record again if they matter",
                path.display()
            )
        })?;
    Ok(Some(found))
}

fn instances(table: &DataFrame) -> Result<Resolver, String> {
    let (process, number) = (
        frame::numbers(table, "process")?,
        frame::numbers(table, "object")?,
    );
    let (start, bytes) = (
        frame::numbers(table, "start")?,
        frame::numbers(table, "bytes")?,
    );
    let (begin, end) = (
        frame::numbers(table, "begin_ns")?,
        frame::numbers(table, "end_ns")?,
    );
    // Blocks that one row stands for; traces of older recorders have one in each.
    let times = if frame::has(table, "times") {
        frame::numbers(table, "times")?
    } else {
        vec![1; table.height()]
    };
    let columns = ["kind", "name", "type", "module", "stack"].map(|name| frame::texts(table, name));
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
    for row in 0..table.height() {
        let object = *known.entry(number[row]).or_insert_with(|| {
            let text = |column: &[Option<&str>]| column[row].unwrap_or_default().to_string();
            let object = Object {
                kind: text(&kind),
                name: text(&name),
                of_type: text(&of_type),
                module: text(&module),
                stack: text(&stack),
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
