//! `objects.parquet` in.

use super::{Instance, Object, Resolver};
use crate::input::quietly;
use polars::prelude::*;
use std::collections::HashMap;
use std::path::Path;

/// Name of the file in a trace folder.
pub const OBJECTS_FILE: &str = mgz_annotations_schema::trace::OBJECTS;

/// Reads the objects of a trace. `Ok(None)` if it has none; an error is a sentence for the user.
pub fn read(folder: &Path) -> Result<Option<Resolver>, String> {
    let path = folder.join(OBJECTS_FILE);
    let file = match std::fs::File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}; objects are not named", path.display())),
    };
    let frame = quietly(|| ParquetReader::new(file).finish())
        .and_then(|r| r.map_err(|e| e.to_string()))
        .and_then(|frame| instances(&frame))
        .map_err(|e| format!("{}: damaged ({e}); objects are not named, record again if they matter", path.display()))?;
    Ok(Some(frame))
}

fn numbers(frame: &DataFrame, name: &str) -> Result<Vec<u64>, String> {
    let column = frame.column(name).map_err(|_| format!("column {name:?} is missing"))?;
    let column = column.cast(&DataType::UInt64).map_err(|e| e.to_string())?;
    let values = column.u64().map_err(|e| format!("column {name:?}: {e}"))?;
    if values.null_count() > 0 {
        return Err(format!("column {name:?} has empty or negative fields"));
    }
    Ok(values.into_no_null_iter().collect())
}

fn texts<'a>(frame: &'a DataFrame, name: &str) -> Result<&'a StringChunked, String> {
    let column = frame.column(name).map_err(|_| format!("column {name:?} is missing"))?;
    column.str().map_err(|e| format!("column {name:?}: {e}"))
}

fn instances(frame: &DataFrame) -> Result<Resolver, String> {
    let (process, number) = (numbers(frame, "process")?, numbers(frame, "object")?);
    let (start, bytes) = (numbers(frame, "start")?, numbers(frame, "bytes")?);
    let (begin, end) = (numbers(frame, "begin_ns")?, numbers(frame, "end_ns")?);
    // Blocks that one row stands for; traces of older recorders have one in each.
    let times = if frame.column("times").is_ok() { numbers(frame, "times")? } else { vec![1; frame.height()] };
    let columns = ["kind", "name", "type", "module", "stack"].map(|name| texts(frame, name));
    let [kind, name, of_type, module, stack] = columns;
    let (kind, name, of_type, module, stack) = (kind?, name?, of_type?, module?, stack?);
    let mut objects = vec![Object { kind: "unknown".into(), name: "[no known object]".into(), ..Object::default() }];
    let mut known: HashMap<u64, u32> = HashMap::new();
    let mut by_content: HashMap<Object, u32> = HashMap::new();
    let mut list = Vec::with_capacity(process.len());
    for row in 0..frame.height() {
        let object = *known.entry(number[row]).or_insert_with(|| {
            let text = |column: &StringChunked| column.get(row).unwrap_or_default().to_string();
            let object = Object { kind: text(kind), name: text(name), of_type: text(of_type), module: text(module), stack: text(stack) };
            *by_content.entry(object.clone()).or_insert_with(|| {
                objects.push(object);
                objects.len() as u32 - 1
            })
        });
        list.push(Instance {
            process: u32::try_from(process[row]).map_err(|_| "a process id is too large".to_string())?,
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
