//! Misses by code and object, and the part that a prefetcher would have foreseen.

use crate::ordered::Stretch;
use mgz_analyzer::columns;
use mgz_analyzer::commands::owners::{OBJECT_COLUMNS, Owners};
use mgz_analyzer::data::code_map::CodeMap;
use mgz_analyzer::data::group::Group;
use mgz_analyzer::output::document::{ColumnUnit, Document, DocumentColumn, DocumentTable, maybe};
use mgz_models::cache::prefetch::{Foreseen, Foresight};
use serde_json::Value;
use std::collections::HashMap;

/// Levels whose misses have a column.
const LEVELS: usize = 4;

/// Counts of a piece of code or an object.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    accesses: u64,
    /// By level.
    misses: [u64; LEVELS],
    /// Misses of the last level, and those among them that would have been foreseen: by either
    /// prefetcher, by strides, and by next lines.
    last: u64,
    foreseen: u64,
    by_stride: u64,
    by_next_line: u64,
    /// Misses of the first level that were foreseen.
    foreseen_first: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.accesses += other.accesses;
        for (sum, more) in self.misses.iter_mut().zip(other.misses) {
            *sum += more;
        }
        self.last += other.last;
        self.foreseen += other.foreseen;
        self.by_stride += other.by_stride;
        self.by_next_line += other.by_next_line;
        self.foreseen_first += other.foreseen_first;
    }

    fn missed(&mut self, reached: usize, levels: usize, foreseen: Foreseen) {
        for misses in &mut self.misses[..reached.min(LEVELS)] {
            *misses += 1;
        }
        let either = u64::from(foreseen.stride || foreseen.next_line);
        self.foreseen_first += either;
        if reached == levels {
            self.last += 1;
            self.foreseen += either;
            self.by_stride += u64::from(foreseen.stride);
            self.by_next_line += u64::from(foreseen.next_line);
        }
    }

    fn cells(&self, levels: usize, all_last: u64) -> Vec<Value> {
        let share = |n: u64, of: u64| maybe((of > 0).then(|| n as f64 / of as f64));
        let mut cells: Vec<Value> = (0..LEVELS)
            .map(|level| match level < levels {
                true => Value::from(self.misses[level]),
                false => Value::Null,
            })
            .collect();
        cells.extend([
            share(self.last, all_last),
            share(self.foreseen_first, self.misses[0]),
            share(self.foreseen, self.last),
            share(self.by_stride, self.last),
            share(self.by_next_line, self.last),
        ]);
        cells
    }

    /// Orders the worst first.
    fn rank(&self) -> std::cmp::Reverse<(u64, [u64; LEVELS], u64)> {
        let mut misses = self.misses;
        misses.reverse();
        std::cmp::Reverse((self.last, misses, self.accesses))
    }
}

/// Counts misses by code and object.
pub struct Misses {
    levels: usize,
    by_group: Vec<Tally>,
    by_object: HashMap<u32, Tally>,
    owners: Owners,
    /// By core.
    foresight: Vec<Foresight>,
    object: Vec<u32>,
}

impl Misses {
    /// Empty counts.
    pub fn new(levels: usize, line: u64, cores: usize, groups: usize, owners: Owners) -> Misses {
        Misses {
            levels,
            by_group: vec![Tally::default(); groups],
            by_object: HashMap::new(),
            owners,
            foresight: (0..cores).map(|_| Foresight::new(line)).collect(),
            object: Vec::new(),
        }
    }

    /// Counts a row, whose access reached the level `reached`.
    #[inline]
    pub fn access(&mut self, core: usize, rows: &Stretch, row: usize, reached: usize, count: bool) {
        let (address, site) = (rows.address[row], rows.site[row]);
        let foreseen = self.foresight[core].access(site, address, reached > 0);
        if !count {
            return;
        }
        let group = rows.group[row].index();
        if group >= self.by_group.len() {
            self.by_group.resize(group + 1, Tally::default());
        }
        let tally = &mut self.by_group[group];
        tally.accesses += 1;
        if reached == 0 {
            return;
        }
        tally.missed(reached, self.levels, foreseen);
        if self.owners.known() {
            let time = rows.time(row) as u64;
            self.object.clear();
            self.owners.fill(
                (rows.process, rows.thread),
                &[address],
                (time, time),
                &mut self.object,
            );
            let object = self.object.first().copied().unwrap_or_default();
            let tally = self.by_object.entry(object).or_default();
            tally.missed(reached, self.levels, foreseen);
        }
    }

    /// The tables.
    pub fn tables(&self, code: &CodeMap, document: &mut Document) {
        let all: u64 = self.by_group.iter().map(|t| t.last).sum();
        let (mut functions, mut lines) = (HashMap::new(), HashMap::new());
        for (group, tally) in self.by_group.iter().enumerate() {
            let Some(piece) = code
                .pieces
                .get(Group::from_index(group).piece() as usize)
                .filter(|_| tally.accesses > 0)
            else {
                continue;
            };
            let function: &mut Tally = functions.entry(piece.function).or_default();
            function.add(tally);
            let line: &mut Tally = lines.entry((piece.function, piece.line)).or_default();
            line.add(tally);
        }
        let rates = columns![
            misses_1: Count, misses_2: Count, misses_3: Count, misses_4: Count, miss_share: Share,
            prefetchable_first: Share, prefetchable: Share, prefetchable_stride: Share,
            prefetchable_next_line: Share,
        ];
        let mut add = |name, title: &str, names: &[DocumentColumn], counted: bool, rows: Rows| {
            let mut rows = rows;
            rows.sort_by_key(|r| r.1.rank());
            let cells = |(names, tally): (Vec<Value>, Tally)| {
                let mut row = names;
                if counted {
                    row.push(Value::from(tally.accesses));
                }
                row.extend(tally.cells(self.levels, all));
                row
            };
            let mut columns = names.to_vec();
            if counted {
                columns.push(DocumentColumn("A", ColumnUnit::Count));
            }
            columns.extend(rates);
            document.tables.push(DocumentTable {
                name,
                title: format!(
                    "{title} (misses by level; prefetchable: share of the last level's misses that a stride or next-line prefetcher would have foreseen)"
                ),
                columns,
                rows: rows.into_iter().map(cells).collect(),
                text_rows: usize::MAX,
            });
        };
        let of_function = |f: u32| &code.functions[f as usize];
        let mut rows: Rows = Vec::new();
        for (&function, tally) in &functions {
            let name = of_function(function);
            let names = [name.function.as_str(), name.module.as_str()];
            rows.push((names.map(Value::from).to_vec(), *tally));
        }
        rows.sort_by_key(|r| r.0.iter().map(Value::to_string).collect::<Vec<_>>());
        let names = columns![function: Text, module: Text];
        add("misses_functions", "Misses by function", &names, true, rows);
        let mut rows: Rows = Vec::new();
        for (&(function, line), tally) in &lines {
            let place = &code.lines[line as usize];
            let file = place.file.rsplit('/').next().unwrap_or("");
            let names = vec![
                Value::from(of_function(function).function.as_str()),
                Value::from(file),
                Value::from(place.line),
            ];
            rows.push((names, *tally));
        }
        rows.sort_by_key(|r| r.0.iter().map(Value::to_string).collect::<Vec<_>>());
        let names = columns![function: Text, file: Text, line: Line];
        add("misses_lines", "Misses by line", &names, true, rows);
        if self.owners.known() {
            let mut rows: Rows = Vec::new();
            for (&object, tally) in &self.by_object {
                rows.push((self.owners.cells(object), *tally));
            }
            rows.sort_by_key(|r| r.0.iter().map(Value::to_string).collect::<Vec<_>>());
            add(
                "misses_objects",
                "Misses by object",
                &OBJECT_COLUMNS,
                false,
                rows,
            );
        }
        document.put("misses_last", ColumnUnit::Count, all);
    }
}

/// Names and counts.
type Rows = Vec<(Vec<Value>, Tally)>;
