//! `watch.parquet`: one row per sample, two where the next access is not the next load.

use crate::paths::names::Named;
use crate::paths::write::calls;
use crate::util::small_table;
use crate::watch::code_names::{CodeNames, Maps, PlaceName};
use crate::watch::run::WatchRow;
use arrow_array::{
    ArrayRef, BooleanArray, Int32Array, RecordBatch, StringArray, UInt32Array, UInt64Array,
};
use mgz_annotations_schema::manifest::WATCH;
use mgz_generated_code::watch::NamedProcesses;
use std::path::Path;
use std::sync::Arc;

/// Rows with the code of their two accesses.
struct Columns<'a> {
    rows: &'a [WatchRow],
    codes: Vec<[PlaceName; 2]>,
}

impl<'a> Columns<'a> {
    fn new(rows: &'a [WatchRow], maps: &Maps, generated: &NamedProcesses) -> Columns<'a> {
        let mut names = CodeNames::new(generated);
        let codes = rows
            .iter()
            .map(|row| {
                let reused = if row.pair.reuse_ip == 0 {
                    PlaceName::default()
                } else {
                    names.code(maps, row.reused)
                };
                [names.code(maps, row.used), reused]
            })
            .collect();
        Columns { rows, codes }
    }

    fn numbers(&self, of: impl Fn(&WatchRow) -> u64) -> ArrayRef {
        Arc::new(self.rows.iter().map(of).collect::<UInt64Array>())
    }

    fn maybe_numbers(&self, of: impl Fn(&WatchRow) -> Option<u64>) -> ArrayRef {
        Arc::new(self.rows.iter().map(of).collect::<UInt64Array>())
    }

    fn ids(&self, of: impl Fn(&WatchRow) -> u32) -> ArrayRef {
        Arc::new(self.rows.iter().map(of).collect::<UInt32Array>())
    }

    fn names(&self, of: impl Fn(&WatchRow) -> &'static str) -> ArrayRef {
        let names = self.rows.iter().map(|r| Some(of(r)));
        Arc::new(names.collect::<StringArray>())
    }

    fn texts(&self, which: usize, of: impl Fn(&PlaceName) -> &str) -> ArrayRef {
        let texts = self.codes.iter().map(|c| Some(of(&c[which])));
        Arc::new(texts.collect::<StringArray>())
    }

    fn lines(&self, which: usize) -> ArrayRef {
        let lines = self.codes.iter().map(|c| c[which].line as i32);
        Arc::new(lines.collect::<Int32Array>())
    }

    fn writes(&self) -> ArrayRef {
        let writes = self.rows.iter().map(|r| Some(r.pair.write));
        Arc::new(writes.collect::<BooleanArray>())
    }
}

/// Writes the file, and `call_paths.parquet`, into a trace folder, mode 0600.
pub fn write_watch_samples(
    folder: &Path,
    rows: &[WatchRow],
    (maps, generated): (&Maps, &NamedProcesses),
    paths: &Named,
) -> anyhow::Result<()> {
    let path = |node: u32| paths.of_node.get(node as usize).copied().unwrap_or(0);
    let c = Columns::new(rows, maps, generated);
    let loads = c.maybe_numbers(|r| r.pair.counted.map(|c| c.loads));
    let stores = c.maybe_numbers(|r| r.pair.counted.map(|c| c.stores));
    let columns = [
        ("process", c.ids(|r| r.process as u32), false),
        ("thread", c.ids(|r| r.thread as u32), false),
        ("sample", c.numbers(|r| r.pair.sample), false),
        ("until", c.numbers(|r| r.pair.until), false),
        ("outcome", c.names(|r| r.pair.outcome.name()), false),
        ("address", c.numbers(|r| r.pair.address), false),
        ("write", c.writes(), false),
        ("counts", c.names(|r| r.pair.counts.name()), false),
        ("stepped_loads", c.numbers(|r| r.pair.stepped.loads), false),
        (
            "stepped_stores",
            c.numbers(|r| r.pair.stepped.stores),
            false,
        ),
        ("cpu_ns", c.numbers(|r| r.pair.cpu_ns), false),
        ("loads", loads, true),
        ("stores", stores, true),
        ("use_module", c.texts(0, |c| &c.module), false),
        ("use_function", c.texts(0, |c| &c.function), false),
        ("use_file", c.texts(0, |c| &c.file), false),
        ("use_line", c.lines(0), false),
        ("reuse_module", c.texts(1, |c| &c.module), false),
        ("reuse_function", c.texts(1, |c| &c.function), false),
        ("reuse_file", c.texts(1, |c| &c.file), false),
        ("reuse_line", c.lines(1), false),
        ("use_path", c.ids(|r| path(r.pair.use_path)), false),
        ("reuse_path", c.ids(|r| path(r.pair.reuse_path)), false),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns)?;
    small_table::write_small_table(folder, WATCH, batch.schema(), [Ok(batch)])?;
    calls(folder, &paths.calls)
}
