//! `objects.parquet` out: one row per instance.

use crate::objects::heap::lives::Life;
use crate::objects::heap::names::Site;
use crate::objects::types::Layout;
use crate::objects::{Instance, OBJECTS, Object};
use crate::util::small_table;
use arrow_array::{ArrayRef, Float32Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// Columns and their types.
const COLUMNS: [(&str, DataType); 16] = [
    ("process", DataType::UInt32),
    ("object", DataType::UInt64),
    ("kind", DataType::Utf8),
    ("name", DataType::Utf8),
    ("type", DataType::Utf8),
    ("module", DataType::Utf8),
    ("stack", DataType::Utf8),
    ("start", DataType::UInt64),
    ("bytes", DataType::UInt64),
    ("begin_ns", DataType::UInt64),
    ("end_ns", DataType::UInt64),
    ("times", DataType::UInt64),
    ("weight", DataType::Float32),
    ("element_bytes", DataType::UInt64),
    ("fields", DataType::Utf8),
    ("return_addresses", DataType::Utf8),
];

/// Maximum number of call stacks of a site whose return addresses are kept. Source: Chosen;
/// inlining and unrolling turn one call into several.
const MAX_STACKS_OF_SITE: usize = 16;

/// Heap blocks, and the names of their allocation sites.
#[derive(Debug, Default)]
pub struct Blocks {
    /// By number of the call stack.
    pub sites: Vec<Site>,
    /// By the same number: return addresses as in the column `return_addresses`.
    pub returns: Vec<String>,
    /// The objects at each address over time.
    pub lives: Vec<Life>,
}

/// Source: Chosen.
const ROWS_PER_BATCH: usize = 1 << 16;

struct Row<'a> {
    instance: [u64; 4],
    process: u32,
    number: u64,
    texts: [&'a str; 5],
    times: u64,
    weight: f32,
    layout: &'a Layout,
    returns: &'a str,
}

/// The return addresses of the stacks of each site, by the site's number.
fn returns_of(heap: &Blocks, numbers: &BTreeMap<&Site, u64>) -> BTreeMap<u64, String> {
    let mut stacks: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for (site, returns) in heap.sites.iter().zip(&heap.returns) {
        let Some(&number) = numbers.get(site).filter(|_| !returns.is_empty()) else {
            continue;
        };
        let of_site = stacks.entry(number).or_default();
        if !of_site.contains(&returns.as_str()) && of_site.len() < MAX_STACKS_OF_SITE {
            of_site.push(returns);
        }
    }
    let joined = stacks.into_iter().map(|(n, list)| (n, list.join("; ")));
    joined.collect()
}

/// Writes the file into a trace folder, mode 0600. Nothing is written where there is nothing.
pub fn write_objects(folder: &Path, list: &[Instance], heap: &Blocks) -> anyhow::Result<()> {
    if list.is_empty() && heap.lives.is_empty() {
        return Ok(());
    }
    let mut numbers: BTreeMap<&Object, u64> = BTreeMap::new();
    for instance in list {
        let next = numbers.len() as u64 + 1;
        numbers.entry(&instance.object).or_insert(next);
    }
    // Stacks that differ only in unnamed parts belong to one site.
    let mut sites: BTreeMap<&Site, u64> = BTreeMap::new();
    for site in &heap.sites {
        let next = (numbers.len() + sites.len()) as u64 + 1;
        sites.entry(site).or_insert(next);
    }
    let known = list.iter().map(|i| Row {
        instance: [i.start, i.bytes, i.begin_ns, i.end_ns],
        process: i.process,
        number: numbers[&i.object],
        texts: [
            i.object.kind.as_str(),
            &i.object.name,
            &i.object.of_type,
            &i.object.module,
            "",
        ],
        times: 1,
        weight: 1.0,
        layout: &i.object.layout,
        returns: "",
    });
    let nameless = Site::default();
    let returns = returns_of(heap, &sites);
    let blocks = heap.lives.iter().map(|l| {
        let site = heap.sites.get(l.stack as usize).unwrap_or(&nameless);
        let number = sites.get(site).copied().unwrap_or(0);
        Row {
            instance: [l.start, l.bytes, l.begin_ns, l.end_ns],
            process: l.pid,
            number,
            texts: ["heap", &site.name, &site.allocated.of_type, "", &site.stack],
            times: l.times,
            weight: l.weight,
            layout: &site.allocated.layout,
            returns: returns.get(&number).map_or("", String::as_str),
        }
    });
    let fields: Vec<Field> = COLUMNS
        .iter()
        .map(|(name, kind)| Field::new(*name, kind.clone(), false))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    // The first rows have each object once, so that readers find all texts at the beginning.
    let rows = known.chain(blocks);
    let mut met = HashSet::new();
    let first: Vec<bool> = rows.clone().map(|r| met.insert(r.number)).collect();
    let of = |which: bool| {
        let these = rows.clone().zip(&first);
        these
            .filter(move |(_, first)| **first == which)
            .map(|(row, _)| row)
    };
    let mut rows = of(true).chain(of(false)).peekable();
    let batches = std::iter::from_fn(|| {
        rows.peek()?;
        let batch: Vec<Row<'_>> = rows.by_ref().take(ROWS_PER_BATCH).collect();
        Some(RecordBatch::try_new(schema.clone(), columns(&batch)).map_err(Into::into))
    });
    small_table::write_small_table(folder, OBJECTS, schema.clone(), batches)
}

fn columns(rows: &[Row<'_>]) -> Vec<ArrayRef> {
    let u64s = |of: &dyn Fn(&Row<'_>) -> u64| {
        Arc::new(rows.iter().map(of).collect::<UInt64Array>()) as ArrayRef
    };
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|r| r.process).collect::<UInt32Array>()),
        u64s(&|r| r.number),
    ];
    columns.extend((0..5).map(|t| {
        Arc::new(
            rows.iter()
                .map(|r| Some(r.texts[t]))
                .collect::<StringArray>(),
        ) as ArrayRef
    }));
    columns.extend((0..4).map(|k| u64s(&|r| r.instance[k])));
    columns.push(u64s(&|r| r.times));
    columns.push(Arc::new(
        rows.iter().map(|r| r.weight).collect::<Float32Array>(),
    ));
    columns.push(u64s(&|r| r.layout.bytes));
    let fields = rows.iter().map(|r| Some(r.layout.text()));
    columns.push(Arc::new(fields.collect::<StringArray>()));
    let returns = rows.iter().map(|r| Some(r.returns));
    columns.push(Arc::new(returns.collect::<StringArray>()));
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt64Type;
    use mgz_annotations_schema::ObjectKind;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    #[test]
    fn rows_of_one_object_share_its_number() {
        let dir = tempfile::tempdir().unwrap();
        write_objects(dir.path(), &[], &Blocks::default()).unwrap();
        assert!(!dir.path().join(OBJECTS).exists());
        let object = |name: &str| Object {
            kind: ObjectKind::Global,
            name: name.into(),
            of_type: "int".into(),
            module: "a".into(),
            layout: Layout::default(),
        };
        let instance = |process, start, object| Instance {
            process,
            start,
            bytes: 4,
            begin_ns: 0,
            end_ns: u64::MAX,
            object,
        };
        let site = |name: &str| Site {
            name: name.into(),
            stack: format!("malloc < {name}"),
            ..Site::default()
        };
        let life = |start, stack| Life {
            pid: 1,
            stack,
            start,
            bytes: 8,
            begin_ns: 3,
            end_ns: 4,
            times: 2,
            weight: 1.0,
        };
        let heap = Blocks {
            sites: vec![site("f"), site("g"), site("f")],
            returns: ["a+0x11", "", "a+0x22 < a+0x33"].map(String::from).to_vec(),
            lives: vec![life(64, 0), life(72, 1), life(80, 2)],
        };
        write_objects(
            dir.path(),
            &[
                instance(1, 16, object("x")),
                instance(1, 32, object("y")),
                instance(2, 16, object("x")),
            ],
            &heap,
        )
        .unwrap();
        let file = std::fs::File::open(dir.path().join(OBJECTS)).unwrap();
        let batch = ParquetRecordBatchReaderBuilder::try_new(file)
            .unwrap()
            .build()
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        let numbers: Vec<u64> = batch
            .column_by_name("object")
            .unwrap()
            .as_primitive::<UInt64Type>()
            .values()
            .to_vec();
        assert_eq!(
            (
                numbers[0] == numbers[4],
                numbers[0] == numbers[1],
                numbers.contains(&0)
            ),
            (true, false, false)
        );
        assert_eq!(
            batch
                .column_by_name("name")
                .unwrap()
                .as_string::<i32>()
                .value(1),
            "y"
        );
        assert_eq!(batch.num_columns(), 16);
        assert_eq!(
            (
                numbers[2] == numbers[5],
                numbers[2] == numbers[3],
                numbers[..2].contains(&numbers[2])
            ),
            (true, false, false)
        );
        assert_eq!(
            batch
                .column_by_name("stack")
                .unwrap()
                .as_string::<i32>()
                .value(3),
            "malloc < g"
        );
        let returns = batch.column_by_name("return_addresses").unwrap();
        let returns = returns.as_string::<i32>();
        assert_eq!(returns.value(2), "a+0x11; a+0x22 < a+0x33");
        assert_eq!((returns.value(0), returns.value(3)), ("", ""));
        assert_eq!(
            batch
                .column_by_name("times")
                .unwrap()
                .as_primitive::<UInt64Type>()
                .values(),
            &[1, 1, 2, 2, 1, 2]
        );
    }
}
