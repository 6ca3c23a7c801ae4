//! `watch.parquet`: one row per sample, two where the next access is not the next load.

use crate::paths::names::Named;
use crate::paths::write::calls;
use crate::util::small_table;
use crate::watch::code_names::{Code, Maps, Names};
use crate::watch::run::Row;
use arrow_array::{
    ArrayRef, BooleanArray, Int32Array, RecordBatch, StringArray, UInt32Array, UInt64Array,
};
use arrow_schema::{Field, Schema};
use mgz_annotations_schema::manifest::WATCH;
use std::path::Path;
use std::sync::Arc;

/// Writes the file, and `call_paths.parquet`, into a trace folder, mode 0600.
pub fn write(folder: &Path, rows: &[Row], maps: &Maps, paths: &Named) -> anyhow::Result<()> {
    let path = |node: u32| paths.of_node.get(node as usize).copied().unwrap_or(0);
    let mut names = Names::default();
    let codes: Vec<[Code; 2]> = rows
        .iter()
        .map(|row| {
            let reused = if row.pair.reuse_ip == 0 {
                Code::default()
            } else {
                names.code(maps, row.reused)
            };
            [names.code(maps, row.used), reused]
        })
        .collect();
    let numbers = |of: &dyn Fn(&Row) -> u64| {
        Arc::new(rows.iter().map(of).collect::<UInt64Array>()) as ArrayRef
    };
    let ids = |of: &dyn Fn(&Row) -> i32| {
        Arc::new(rows.iter().map(|r| of(r) as u32).collect::<UInt32Array>()) as ArrayRef
    };
    let texts = |which: usize, of: &dyn Fn(&Code) -> &str| {
        Arc::new(
            codes
                .iter()
                .map(|c| Some(of(&c[which])))
                .collect::<StringArray>(),
        ) as ArrayRef
    };
    let lines = |which: usize| {
        Arc::new(
            codes
                .iter()
                .map(|c| c[which].line as i32)
                .collect::<Int32Array>(),
        ) as ArrayRef
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("process", ids(&|r| r.process)),
        ("thread", ids(&|r| r.thread)),
        ("sample", numbers(&|r| r.pair.sample)),
        ("until", numbers(&|r| r.pair.until)),
        (
            "outcome",
            Arc::new(
                rows.iter()
                    .map(|r| Some(r.pair.outcome.name()))
                    .collect::<StringArray>(),
            ),
        ),
        ("address", numbers(&|r| r.pair.address)),
        (
            "write",
            Arc::new(
                rows.iter()
                    .map(|r| Some(r.pair.write))
                    .collect::<BooleanArray>(),
            ),
        ),
        (
            "counts",
            Arc::new(
                rows.iter()
                    .map(|r| Some(r.pair.counts.name()))
                    .collect::<StringArray>(),
            ),
        ),
        ("stepped_loads", numbers(&|r| r.pair.stepped.loads)),
        ("stepped_stores", numbers(&|r| r.pair.stepped.stores)),
        ("cpu_ns", numbers(&|r| r.pair.cpu_ns)),
        (
            "loads",
            Arc::new(
                rows.iter()
                    .map(|r| r.pair.counted.map(|c| c.loads))
                    .collect::<UInt64Array>(),
            ),
        ),
        (
            "stores",
            Arc::new(
                rows.iter()
                    .map(|r| r.pair.counted.map(|c| c.stores))
                    .collect::<UInt64Array>(),
            ),
        ),
        ("use_module", texts(0, &|c| &c.module)),
        ("use_function", texts(0, &|c| &c.function)),
        ("use_file", texts(0, &|c| &c.file)),
        ("use_line", lines(0)),
        ("reuse_module", texts(1, &|c| &c.module)),
        ("reuse_function", texts(1, &|c| &c.function)),
        ("reuse_file", texts(1, &|c| &c.file)),
        ("reuse_line", lines(1)),
        ("use_path", ids(&|r| path(r.pair.use_path) as i32)),
        ("reuse_path", ids(&|r| path(r.pair.reuse_path) as i32)),
    ];
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| {
            Field::new(
                *name,
                column.data_type().clone(),
                matches!(*name, "loads" | "stores"),
            )
        })
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let columns = columns.into_iter().map(|c| c.1).collect();
    let batch = RecordBatch::try_new(schema.clone(), columns).map_err(Into::into);
    small_table::write(folder, WATCH, schema, [batch])?;
    calls(folder, &paths.calls)
}
