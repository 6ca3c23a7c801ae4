//! Reader of `objects.parquet`.
//!
//! A heap may have a million blocks from a hundred allocation sites. So columns of numbers are read
//! one at a time, directly into the list of instances. Texts are read only once for each object,
//! because recorders write a row of each object before all others.

use crate::data::elements::Element;
use crate::data::frame;
use crate::data::object_map::{Instance, Object, Resolver, UNKNOWN};
use crate::input::{manifest_of, quietly};
use mgz_annotations_schema::ObjectKind;
use mgz_annotations_schema::manifest::Module;
use mgz_annotations_schema::sidecar::Sidecar;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

/// Name of the file in a trace folder.
pub const OBJECTS_FILE: &str = mgz_annotations_schema::manifest::OBJECTS;

/// Reads the objects of a trace. `Ok(None)` if it has none; an error is a sentence for the user.
pub fn read_objects(folder: &Path) -> Result<Option<Resolver>, String> {
    let path = folder.join(OBJECTS_FILE);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(format!(
                "{}: {error}; objects are not named",
                path.display()
            ));
        }
    };
    let mut found = quietly(|| instances(&file)).and_then(|r| r).map_err(|e| {
        format!(
            "{}: damaged ({e}); objects are not named, record again if they matter",
            path.display()
        )
    })?;
    name_originals(&mut found.objects, || originals(folder));
    Ok(Some(found))
}

/// Original files by the paths of their instrumented copies. Empty if these are unknown.
fn originals(folder: &Path) -> HashMap<String, String> {
    let modules = manifest_of(folder).map_or_else(|_| Vec::new(), |manifest| manifest.modules);
    let of = |module: Module| {
        let (_, header) = Sidecar::read_header(&folder.join(&module.sidecar)).ok()?;
        (!header.input.path.is_empty()).then_some((module.path, header.input.path))
    };
    modules.into_iter().filter_map(of).collect()
}

/// Gives files that are instrumented copies the names of their originals.
fn name_originals(objects: &mut [Object], originals: impl FnOnce() -> HashMap<String, String>) {
    let mut files = objects
        .iter_mut()
        .filter(|o| o.kind == ObjectKind::File)
        .peekable();
    if files.peek().is_none() {
        return;
    }
    let originals = originals();
    for file in files {
        if let Some(original) = originals.get(&file.name) {
            file.name.clone_from(original);
        }
    }
}

/// A copy of the file's descriptor, read from the start.
fn again(file: &File) -> Result<File, String> {
    file.try_clone().map_err(|e| e.to_string())
}

fn column(file: &File, name: &str) -> Result<Vec<u64>, String> {
    let table = frame::read_columns(again(file)?, &[name], None)?;
    frame::many_numbers(&table, name)
}

fn instances(file: &File) -> Result<Resolver, String> {
    let names = frame::column_names(again(file)?)?;
    let has = |name: &str| names.iter().any(|n| n == name);
    let numbers = column(file, "object")?;
    let mut known: HashMap<u64, u32> = HashMap::new();
    // First row of each object.
    let mut firsts = Vec::new();
    let mut last = u64::MAX;
    for (row, &number) in numbers.iter().enumerate() {
        if number != last || row == 0 {
            known.entry(number).or_insert_with(|| {
                firsts.push(row);
                firsts.len() as u32 - 1
            });
        }
        last = number;
    }
    let (objects, of_number) = objects(file, &firsts, &has)?;
    let mut list: Vec<Instance> = Vec::with_capacity(numbers.len());
    for same in numbers.chunk_by(|a, b| a == b) {
        let known = known.get(&same[0]).and_then(|&k| of_number.get(k as usize));
        let instance = Instance {
            object: known.copied().unwrap_or(UNKNOWN),
            times: 1,
            weight: 1.0,
            ..Instance::default()
        };
        list.resize(list.len() + same.len(), instance);
    }
    drop(numbers);
    for (instance, process) in list.iter_mut().zip(column(file, "process")?) {
        instance.process =
            u32::try_from(process).map_err(|_| "a process id is too large".to_string())?;
    }
    let mut fill = |name: &str, place: fn(&mut Instance) -> &mut u64| {
        let values = column(file, name)?;
        for (instance, value) in list.iter_mut().zip(values) {
            *place(instance) = value;
        }
        Ok::<_, String>(())
    };
    fill("start", |i| &mut i.start)?;
    fill("bytes", |i| &mut i.bytes)?;
    fill("begin_ns", |i| &mut i.begin_ns)?;
    fill("end_ns", |i| &mut i.end_ns)?;
    // Blocks that a row represents; one in traces of older recorders.
    if has("times") {
        fill("times", |i| &mut i.times)?;
    }
    if has("weight") {
        let table = frame::read_columns(again(file)?, &["weight"], None)?;
        for (instance, weight) in list.iter_mut().zip(frame::many_floats(&table, "weight")?) {
            // NaN counts as 1.
            instance.weight = if weight >= 1.0 { weight } else { 1.0 };
        }
    }
    Ok(Resolver::new(objects, &list))
}

/// The distinct objects of these rows, the unknown one first, and by row the index of its object.
fn objects(
    file: &File,
    rows: &[usize],
    has: &dyn Fn(&str) -> bool,
) -> Result<(Vec<Object>, Vec<u32>), String> {
    let mut objects = vec![Object::not_known()];
    let Some(last) = rows.last() else {
        return Ok((objects, Vec::new()));
    };
    const TEXTS: [&str; 5] = ["kind", "name", "type", "module", "stack"];
    let table = frame::read_columns(again(file)?, &TEXTS, Some(last + 1))?;
    let columns = TEXTS.map(|name| frame::texts(&table, name));
    let [kind, name, of_type, module, stack] = columns;
    let (kind, name, of_type, module, stack) = (kind?, name?, of_type?, module?, stack?);
    // Traces of older recorders have no elements.
    const ELEMENTS: [&str; 2] = ["element_bytes", "fields"];
    let elements = match has(ELEMENTS[1]) {
        true => Some(frame::read_columns(
            again(file)?,
            &ELEMENTS,
            Some(last + 1),
        )?),
        false => None,
    };
    let elements = match &elements {
        Some(table) => Some((
            frame::many_numbers(table, ELEMENTS[0])?,
            frame::texts(table, ELEMENTS[1])?,
        )),
        None => None,
    };
    let element = |row: usize| {
        let (bytes, fields) = elements.as_ref()?;
        let fields = fields.get(row).copied().flatten().unwrap_or_default();
        Some(Element::parse(*bytes.get(row)?, fields))
    };
    const RETURNS: &str = "return_addresses";
    let returns = match has(RETURNS) {
        true => Some(frame::read_columns(
            again(file)?,
            &[RETURNS],
            Some(last + 1),
        )?),
        false => None,
    };
    let returns = match &returns {
        Some(table) => frame::texts(table, RETURNS)?,
        None => Vec::new(),
    };
    let mut by_content: HashMap<Object, u32> = HashMap::new();
    let numbers = rows
        .iter()
        .map(|&row| {
            let text = |column: &[Option<&str>]| {
                let text = column.get(row).copied().flatten();
                text.unwrap_or_default().to_string()
            };
            let object = Object {
                kind: text(&kind).into(),
                name: text(&name),
                of_type: text(&of_type),
                module: text(&module),
                stack: text(&stack),
                return_addresses: text(&returns),
                element: element(row).unwrap_or_default(),
            };
            *by_content.entry(object.clone()).or_insert_with(|| {
                objects.push(object);
                objects.len() as u32 - 1
            })
        })
        .collect();
    Ok((objects, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instrumented_copy_has_the_name_of_its_original() {
        let object = |kind: &str, name: &str| Object {
            kind: kind.into(),
            name: name.into(),
            ..Object::default()
        };
        let originals = || HashMap::from([("/cache/1/app".to_owned(), "/home/me/app".to_owned())]);
        let mut objects = [
            object("file", "/cache/1/app"),
            object("file", "/lib/libc.so.6"),
            object("global", "/cache/1/app"),
        ];
        name_originals(&mut objects, originals);
        let names = objects.each_ref().map(|o| o.name.as_str());
        assert_eq!(names, ["/home/me/app", "/lib/libc.so.6", "/cache/1/app"]);
    }
}
