//! The recorded rows, with names, as batches of columns in Arrow's layout.

use crate::commands::counted::is_counted;
use crate::commands::owners::Owners;
use crate::commands::stream::{AccessSegment, Accesses, segments};
use crate::commands::{is_watched, refuse_watched};
use crate::data::code_map::{CodeMap, FunctionName, LineName};
use crate::data::group::Group;
use crate::filter::{Conditions, Filter, Filtered};
use crate::input::source::ChunkSource;
use crate::input::{ColumnSet, Trace};
use crate::output::document::Document;
use arrow_array::types::{ArrowPrimitiveType, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, LargeStringArray, PrimitiveArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::collections::HashMap;
use std::sync::Arc;

/// Rows of a batch, about. Source: Chosen.
const ROWS_PER_BATCH: usize = 1 << 16;

/// A column of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowColumn {
    /// System process id.
    Process,
    /// System thread id.
    Thread,
    /// Number of the sample in its thread.
    Sample,
    /// When the row's part of the sample begins, nanoseconds.
    FromNs,
    /// When the row's part of the sample ends, nanoseconds.
    ToNs,
    /// `load` or `store`.
    Access,
    /// Start address.
    Address,
    /// Bytes.
    Size,
    /// `constant`, `strided`, `irregular` or `store`.
    Class,
    /// Constant loads that the row represents in addition to its own.
    Implied,
    /// Function.
    Function,
    /// Its module.
    Module,
    /// Source file.
    File,
    /// Source line; 0 if unknown.
    Line,
    /// Data object.
    Object,
}

/// Every column by name, in the order of the documentation.
pub const ROW_COLUMNS: [(&str, RowColumn); 15] = [
    ("process", RowColumn::Process),
    ("thread", RowColumn::Thread),
    ("sample", RowColumn::Sample),
    ("from_ns", RowColumn::FromNs),
    ("to_ns", RowColumn::ToNs),
    ("access", RowColumn::Access),
    ("address", RowColumn::Address),
    ("size", RowColumn::Size),
    ("class", RowColumn::Class),
    ("implied", RowColumn::Implied),
    ("function", RowColumn::Function),
    ("module", RowColumn::Module),
    ("file", RowColumn::File),
    ("line", RowColumn::Line),
    ("object", RowColumn::Object),
];

impl RowColumn {
    /// The column of that name.
    ///
    /// # Errors
    ///
    /// A sentence with all names.
    pub fn of(name: &str) -> Result<RowColumn, String> {
        let found = ROW_COLUMNS.iter().find(|c| c.0 == name);
        found.map(|c| c.1).ok_or_else(|| {
            let all = ROW_COLUMNS.map(|c| c.0).join(", ");
            format!("rows have no column {name:?}; there are {all}")
        })
    }

    fn name(self) -> &'static str {
        ROW_COLUMNS.iter().find(|c| c.1 == self).map_or("", |c| c.0)
    }

    fn data_type(self) -> DataType {
        match self {
            RowColumn::Process
            | RowColumn::Thread
            | RowColumn::Sample
            | RowColumn::Size
            | RowColumn::Implied
            | RowColumn::Line => DataType::UInt32,
            RowColumn::FromNs | RowColumn::ToNs | RowColumn::Address => DataType::UInt64,
            RowColumn::Access
            | RowColumn::Class
            | RowColumn::Function
            | RowColumn::Module
            | RowColumn::File
            | RowColumn::Object => DataType::LargeUtf8,
        }
    }
}

/// The columns of a batch.
pub fn row_type(columns: &[RowColumn]) -> SchemaRef {
    let field = |c: &RowColumn| Field::new(c.name(), c.data_type(), false);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// Rows that wait for the next batch. Data that is the same for a run of rows is stored once per
/// run.
#[derive(Default)]
struct Waiting {
    rows: Accesses,
    implied: Vec<u32>,
    objects: Vec<u32>,
    /// Rows, process, thread, sample, begin and end.
    runs: Vec<(usize, u32, u32, u32, u64, u64)>,
}

/// Passes all rows of a trace that match `conditions` to `each`, in order of process, thread and
/// sample. Loads and stores are in program order. Stops when `each` returns false. Damaged parts
/// are skipped and returned.
///
/// # Errors
///
/// A trace without rows of loads, conditions that match nothing.
pub fn send(
    trace: &Trace,
    conditions: &Conditions,
    columns: &[RowColumn],
    each: &mut dyn FnMut(RecordBatch) -> bool,
) -> anyhow::Result<Vec<String>> {
    if is_watched(&trace.folder) {
        return Err(refuse_watched(&trace.folder, "rows"));
    }
    if is_counted(&trace.folder) {
        anyhow::bail!(
            "{}: a trace of mgz-record --count has numbers of loads and no rows; record with another --mode",
            trace.folder.display()
        );
    }
    let timed = conditions.from.is_some()
        || conditions.to.is_some()
        || columns
            .iter()
            .any(|c| matches!(c, RowColumn::FromNs | RowColumn::ToNs | RowColumn::Object));
    let source = trace.source(ColumnSet { time: timed });
    let source = &*source;
    let objects = if conditions.objects.is_empty() {
        None
    } else {
        crate::input::objects::read_objects(&trace.folder)
            .map_err(anyhow::Error::msg)?
            .map(Arc::new)
    };
    let filter = (!conditions.is_empty())
        .then(|| {
            let objects = objects.as_deref();
            Filter::new(conditions, &trace.manifest, &trace.code, objects, source)
        })
        .transpose()?;
    let filtered = filter
        .as_ref()
        .map(|filter| Filtered::new(source, filter, &trace.code, objects.clone(), None));
    let source = filtered.as_ref().map_or(source, |f| f as &dyn ChunkSource);
    let mut notes = Document::new("rows");
    let mut owners = columns
        .contains(&RowColumn::Object)
        .then(|| Owners::open(trace, &mut notes));
    let mut damage = notes.warnings;
    damage.extend(trace.damage.iter().cloned());
    let mut waiting = Waiting::default();
    let mut last = None;
    for piece in 0..source.pieces() {
        for read in source.read(&[piece]) {
            let mut chunk = match read {
                Ok(chunk) => chunk,
                Err((sentence, _)) => {
                    damage.push(sentence);
                    continue;
                }
            };
            damage.append(&mut chunk.damage);
            for segment in segments(&chunk, &mut last) {
                waiting.take(&segment, owners.as_mut());
                if waiting.rows.address.len() >= ROWS_PER_BATCH
                    && !each(waiting.batch(columns, &trace.code, owners.as_ref()))
                {
                    return Ok(damage);
                }
            }
        }
    }
    if !waiting.rows.address.is_empty() {
        each(waiting.batch(columns, &trace.code, owners.as_ref()));
    }
    damage.extend(source.notes());
    if let Some(filtered) = &filtered {
        filtered.check()?;
    }
    Ok(damage)
}

impl Waiting {
    fn take(&mut self, segment: &AccessSegment<'_>, owners: Option<&mut Owners>) {
        let mut buffer = Accesses::default();
        let rows = segment.accesses(true, &mut buffer);
        let run = segment.run;
        if let Some(owners) = owners {
            let times = (run.first_time, run.last_time);
            owners.fill(
                (run.process, run.thread),
                rows.address,
                times,
                &mut self.objects,
            );
        }
        // The implied counts of loads are in the order of the loads, even if stores come between
        // them.
        let (mut loads, mut stores) = (segment.loads.implied.iter(), segment.stores.implied.iter());
        self.implied.extend(rows.group.iter().map(|group| {
            let of = if group.is_store() {
                stores.next()
            } else {
                loads.next()
            };
            of.map_or(0, |&n| u32::from(n))
        }));
        self.runs.push((
            rows.len(),
            run.process,
            run.thread,
            run.sample,
            run.first_time,
            run.last_time,
        ));
        self.rows.extend(rows);
    }

    /// Makes a batch and forgets the rows.
    fn batch(
        &mut self,
        columns: &[RowColumn],
        code: &CodeMap,
        owners: Option<&Owners>,
    ) -> RecordBatch {
        let length = self.rows.address.len();
        let arrays = columns.iter().map(|&c| self.column(c, code, owners));
        let options = RecordBatchOptions::new().with_row_count(Some(length));
        let batch =
            RecordBatch::try_new_with_options(row_type(columns), arrays.collect(), &options)
                .expect("columns of the rows' length, whose types are those of the schema");
        *self = Waiting::default();
        batch
    }

    fn by_run<T: Copy>(&self, value: impl Fn(&(usize, u32, u32, u32, u64, u64)) -> T) -> Vec<T> {
        let of = |run| std::iter::repeat_n(value(run), run.0);
        self.runs.iter().flat_map(of).collect()
    }

    fn column(&self, column: RowColumn, code: &CodeMap, owners: Option<&Owners>) -> ArrayRef {
        let groups = &self.rows.group;
        let function = |group: Group| -> &FunctionName {
            let piece = &code.pieces[group.piece() as usize];
            &code.functions[piece.function as usize]
        };
        let line = |group: Group| -> &LineName {
            &code.lines[code.pieces[group.piece() as usize].line as usize]
        };
        match column {
            RowColumn::Process => whole::<UInt32Type>(self.by_run(|run| run.1)),
            RowColumn::Thread => whole::<UInt32Type>(self.by_run(|run| run.2)),
            RowColumn::Sample => whole::<UInt32Type>(self.by_run(|run| run.3)),
            RowColumn::FromNs => whole::<UInt64Type>(self.by_run(|run| run.4)),
            RowColumn::ToNs => whole::<UInt64Type>(self.by_run(|run| run.5)),
            RowColumn::Address => whole::<UInt64Type>(self.rows.address.clone()),
            RowColumn::Size => whole::<UInt32Type>(self.rows.size.clone()),
            RowColumn::Implied => whole::<UInt32Type>(self.implied.clone()),
            RowColumn::Access => texts(groups.iter().map(|group| match group.is_store() {
                true => "store",
                false => "load",
            })),
            RowColumn::Class => texts(groups.iter().map(|group| group.class_name())),
            RowColumn::Function => texts(groups.iter().map(|&g| function(g).function.as_str())),
            RowColumn::Module => texts(groups.iter().map(|&g| function(g).module.as_str())),
            RowColumn::File => texts(groups.iter().map(|&g| line(g).file.as_str())),
            RowColumn::Line => whole::<UInt32Type>(groups.iter().map(|&g| line(g).line).collect()),
            RowColumn::Object => {
                let name = |o: u32| owners.map_or_else(String::new, |owners| owners.object(o).name);
                let mut names = HashMap::new();
                for &object in &self.objects {
                    names.entry(object).or_insert_with(|| name(object));
                }
                texts(self.objects.iter().map(|o| names[o].as_str()))
            }
        }
    }
}

fn whole<T: ArrowPrimitiveType>(values: Vec<T::Native>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(values.into(), None))
}

fn texts<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(LargeStringArray::from_iter_values(values))
}
