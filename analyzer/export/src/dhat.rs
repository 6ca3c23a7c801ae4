//! DHAT's file: heap blocks by allocation stack, with the bytes that were read of them.

use crate::profile::Profile;
use mgz_analyzer::data::frame;
use mgz_analyzer::data::object_map::Object;
use mgz_analyzer::input::objects::OBJECTS_FILE;
use mgz_annotations_schema::ObjectKind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Fields that distinguish objects. Other data is not used here.
fn identity(object: &Object) -> [&str; 5] {
    [
        object.kind.as_str(),
        &object.name,
        &object.of_type,
        &object.module,
        &object.stack,
    ]
}

/// The file; an error is a sentence for the user.
pub fn write_dhat(folder: &Path, profile: &Profile) -> Result<Value, String> {
    let path = folder.join(OBJECTS_FILE);
    let named = |cause: String| format!("{}: {cause}", path.display());
    let file = std::fs::File::open(&path).map_err(|e| {
        named(format!(
            "{e}; DHAT shows heap blocks, and this trace has none: record it with mgz-record --heap"
        ))
    })?;
    let table = frame::read_parquet(file).map_err(named)?;
    let columns =
        ["kind", "name", "type", "module", "stack"].map(|name| frame::texts(&table, name));
    let [kind, name, of_type, module, stack] = columns;
    let (kind, name, of_type) = (
        kind.map_err(named)?,
        name.map_err(named)?,
        of_type.map_err(named)?,
    );
    let (module, stack) = (module.map_err(named)?, stack.map_err(named)?);
    let bytes = frame::numbers(&table, "bytes").map_err(named)?;
    let times = match frame::has(&table, "times") {
        true => frame::numbers(&table, "times").map_err(named)?,
        false => vec![1; table.height()],
    };
    let mut read: HashMap<[&str; 5], u64> = HashMap::new();
    for sample in &profile.samples {
        let object = identity(&profile.objects[sample.object as usize]);
        *read.entry(object).or_default() += sample.bytes;
    }
    // The heap as a whole is also an object, but has no stack. Blocks and bytes are counted by
    // object; the bytes of a row are those of its greatest block.
    let mut blocks: BTreeMap<(String, String), (Object, u64, u64)> = BTreeMap::new();
    let heap = ObjectKind::Heap;
    for row in (0..table.height()).filter(|&row| {
        kind[row] == Some(heap.as_str()) && stack[row].is_some_and(|s| !s.is_empty())
    }) {
        let text = |column: &[Option<&str>]| column[row].unwrap_or_default().to_string();
        let object = Object {
            kind: heap.clone(),
            name: text(&name),
            of_type: text(&of_type),
            module: text(&module),
            stack: text(&stack),
            ..Object::default()
        };
        let key = (object.name.clone(), object.stack.clone());
        let entry = blocks.entry(key).or_insert((object, 0, 0));
        entry.1 += times[row];
        entry.2 += bytes[row] * times[row];
    }
    if blocks.is_empty() {
        return Err(named(
            "DHAT shows heap blocks, and this trace has none: record it with mgz-record --heap"
                .into(),
        ));
    }
    let mut frames = vec!["[root]".to_string()];
    let mut index: HashMap<String, usize> = HashMap::new();
    let points: Vec<Value> = blocks
        .into_values()
        .map(|(object, count, bytes)| {
            let stack: Vec<usize> = object
                .stack
                .split(" < ")
                .filter(|f| !f.is_empty())
                .map(|frame| {
                    *index.entry(frame.to_string()).or_insert_with(|| {
                        frames.push(frame.into());
                        frames.len() - 1
                    })
                })
                .collect();
            let stack = if stack.is_empty() { vec![0] } else { stack };
            json!({"tb": bytes, "tbk": count, "rb": read.get(&identity(&object)).unwrap_or(&0), "wb": 0, "fs": stack})
        })
        .collect();
    let notes = profile.notes.join("; ");
    Ok(json!({
        "dhatFileVersion": 2,
        "mode": "heap reads by mgz",
        "verb": "Allocated",
        "bklt": false,
        "bkacc": true,
        "bu": "byte",
        "bsu": "bytes",
        "bksu": "blocks",
        "tu": "ns",
        "Mtu": "ms",
        "cmd": format!("{} (writes are not in it; {notes})", profile.command_line()),
        "pid": profile.threads.first().map_or(0, |t| t.process),
        "te": profile.slices.iter().map(|s| s.to_ns).max().unwrap_or(0)
            - profile.slices.iter().map(|s| s.from_ns).min().unwrap_or(0),
        "pps": points,
        "ftbl": frames,
    }))
}
