//! The command's tables.

use crate::reuse::ReuseArguments;
use crate::reuse::counts::{ReuseHistograms, ReuseTally};
use mgz_analyzer::columns;
use mgz_analyzer::commands::owners::{OBJECT_COLUMNS, Owners};
use mgz_analyzer::data::code_map::CodeMap;
use mgz_analyzer::input::Trace;
use mgz_analyzer::output::document::{Document, DocumentColumn, DocumentTable, maybe, value};
use mgz_models::histogram::{Bin, Fine, PART_BITS, Scale};
use mgz_models::miss_ratio::MissRatio;
use serde_json::Value;

/// A histogram as a table.
pub(crate) fn histogram(
    name: &'static str,
    title: &str,
    fine: &Fine,
    scale: &Scale,
) -> anyhow::Result<DocumentTable> {
    if let (Scale::Linear { width }, Some(max)) = (scale, fine.max()) {
        anyhow::ensure!(
            max / width < 10_000_000,
            "--width {width} makes more than 10 million bins up to {max}; choose a larger one or --bins log-linear"
        );
    }
    let bins = fine.cut(scale);
    Ok(histogram_rows(name, title, &bins))
}

/// Bins as a table.
pub(crate) fn histogram_rows(name: &'static str, title: &str, bins: &[Bin]) -> DocumentTable {
    let total: f64 = bins.iter().map(|b| b.count).sum();
    let rows = bins
        .iter()
        .map(|b| {
            vec![
                value(b.from),
                value(b.to),
                value(b.count),
                value(if total > 0.0 { b.count / total } else { 0.0 }),
                maybe((b.count > 0.0).then(|| b.mean())),
            ]
        })
        .collect();
    let columns = columns![
        from: Number, to: Number, count: Number, share: Share, mean: Number,
    ]
    .to_vec();
    DocumentTable {
        name,
        title: title.into(),
        columns,
        rows,
        text_rows: 64,
    }
}

/// Partitions of equal counts.
pub(crate) fn reference(distances: &Fine, partitions: usize) -> DocumentTable {
    let rows = distances
        .reference(partitions)
        .iter()
        .enumerate()
        .map(|(i, p)| vec![Value::from(i), value(p.from), value(p.to), value(p.mean)])
        .collect();
    let columns = columns![partition: Count, from: Number, to: Number, mean: Number].to_vec();
    DocumentTable {
        name: "reference",
        title: "Reference histogram".into(),
        columns,
        rows,
        text_rows: 0,
    }
}

/// The curve, and the requested sizes.
pub(crate) fn miss_ratios(
    counts: &ReuseHistograms,
    implied: u64,
    arguments: &ReuseArguments,
) -> DocumentTable {
    let ratio = MissRatio::new(
        counts.distances.bins(),
        counts.firsts as f64,
        implied as f64,
    );
    let mut rows: Vec<(u64, f64)> = ratio
        .curve(4)
        .into_iter()
        .map(|(blocks, miss)| (blocks * arguments.block, miss))
        .collect();
    let asked = arguments
        .cache
        .iter()
        .map(|&bytes| (bytes, ratio.ratio((bytes / arguments.block) as f64)));
    rows.extend(asked);
    rows.sort_by_key(|r| r.0);
    rows.dedup_by_key(|r| r.0);
    let rows = rows
        .into_iter()
        .map(|(bytes, miss)| {
            vec![
                Value::from(bytes),
                Value::from(bytes / arguments.block),
                value(miss),
            ]
        })
        .collect();
    DocumentTable {
        name: "miss_ratios",
        title: "Miss ratio of fully associative LRU caches (implied Constant loads count as hits)"
            .into(),
        columns: columns![bytes: Bytes, blocks: Count, miss_ratio: Share].to_vec(),
        rows,
        text_rows: 256,
    }
}

/// Value below which a share of the distances lies.
fn quantile(distances: &Fine, share: f64) -> Value {
    let target = share * distances.count() as f64;
    let mut seen = 0.0;
    for bin in distances.bins() {
        seen += bin.count;
        if seen >= target {
            return value(bin.mean());
        }
    }
    Value::Null
}

fn part_cells(part: &ReuseTally) -> Vec<Value> {
    let reuses = part.distances.count();
    vec![
        Value::from(reuses),
        Value::from(part.firsts),
        maybe(part.distances.mean()),
        quantile(&part.distances, 0.5),
        quantile(&part.distances, 0.9),
        part.distances.max().map_or(Value::Null, Value::from),
        maybe((reuses > 0).then(|| part.intervals / reuses as f64)),
    ]
}

const PART_COLUMNS: [DocumentColumn; 7] = columns![
    reuses: Count, first_touches: Count, D_mean: Number, D_median: Number, D_p90: Number,
    D_max: Count, interval_mean: Number,
];

fn columns(first: &[DocumentColumn]) -> Vec<DocumentColumn> {
    first.iter().chain(&PART_COLUMNS).copied().collect()
}

/// Sums groups by `key`, hottest first.
fn by<K: Fn(&CodeMap, usize, u32) -> u32>(
    counts: &ReuseHistograms,
    code: &CodeMap,
    key: K,
) -> Vec<(u32, ReuseTally)> {
    let mut sums: std::collections::BTreeMap<u32, ReuseTally> = std::collections::BTreeMap::new();
    for (part, &(group, object)) in counts.groups.iter().zip(&counts.tags.pairs) {
        if let Some(part) = part {
            sums.entry(key(code, group.piece() as usize, object))
                .or_insert_with(|| ReuseTally::new(PART_BITS))
                .merge(part);
        }
    }
    let mut sums: Vec<(u32, ReuseTally)> = sums.into_iter().collect();
    sums.sort_by(|a, b| {
        (b.1.distances.count() + b.1.firsts)
            .cmp(&(a.1.distances.count() + a.1.firsts))
            .then(a.0.cmp(&b.0))
    });
    sums
}

/// Functions, lines, and histograms of functions.
pub(crate) fn tables_of_code(counts: &ReuseHistograms, trace: &Trace, document: &mut Document) {
    let code = &trace.code;
    let functions = by(counts, code, |code, piece, _| code.pieces[piece].function);
    let name = |f: u32| {
        vec![
            Value::from(code.functions[f as usize].function.as_str()),
            Value::from(code.functions[f as usize].module.as_str()),
        ]
    };
    document.tables.push(DocumentTable {
        name: "functions",
        title: "Functions (of the reusing access)".into(),
        columns: columns(&columns![function: Text, module: Text]),
        rows: functions
            .iter()
            .map(|(f, part)| [name(*f), part_cells(part)].concat())
            .collect(),
        text_rows: usize::MAX,
    });
    let lines = by(counts, code, |code, piece, _| code.pieces[piece].line);
    document.tables.push(DocumentTable {
        name: "lines",
        title: "Lines (of the reusing access)".into(),
        columns: columns(&columns![function: Text, file: Text, line: Line]),
        rows: lines
            .iter()
            .map(|(l, part)| {
                let line = &code.lines[*l as usize];
                [
                    vec![
                        Value::from(line.function.as_str()),
                        Value::from(line.file.as_str()),
                        Value::from(line.line),
                    ],
                    part_cells(part),
                ]
                .concat()
            })
            .collect(),
        // Without line information this would repeat the functions.
        text_rows: if lines.iter().any(|(l, _)| code.lines[*l as usize].line > 0) {
            usize::MAX
        } else {
            0
        },
    });
    let mut rows = Vec::new();
    for (f, part) in &functions {
        for bin in part
            .distances
            .cut(&Scale::Log)
            .iter()
            .filter(|b| b.count > 0.0)
        {
            rows.push(
                [
                    name(*f),
                    vec![value(bin.from), value(bin.to), value(bin.count)],
                ]
                .concat(),
            );
        }
    }
    document.tables.push(DocumentTable {
        name: "function_distances",
        title: String::new(),
        columns: columns![
            function: Text, module: Text, from: Number, to: Number, count: Number,
        ]
        .to_vec(),
        rows,
        text_rows: 0,
    });
}

/// Objects of the reusing access, and their histograms.
pub(crate) fn object_tables(counts: &ReuseHistograms, owners: &Owners, document: &mut Document) {
    let parts = by(counts, &CodeMap::new(), |_, _, object| object);
    document.tables.push(DocumentTable {
        name: "objects",
        title: "Objects (distances over all blocks in between)".into(),
        columns: columns(&OBJECT_COLUMNS),
        rows: parts
            .iter()
            .map(|(o, part)| [owners.cells(*o), part_cells(part)].concat())
            .collect(),
        text_rows: usize::MAX,
    });
    let mut rows = Vec::new();
    for (o, part) in &parts {
        for bin in part
            .distances
            .cut(&Scale::Log)
            .iter()
            .filter(|b| b.count > 0.0)
        {
            rows.push(
                [
                    owners.cells(*o),
                    vec![value(bin.from), value(bin.to), value(bin.count)],
                ]
                .concat(),
            );
        }
    }
    document.tables.push(DocumentTable {
        name: "object_distances",
        title: String::new(),
        columns: OBJECT_COLUMNS
            .into_iter()
            .chain(columns![from: Number, to: Number, count: Number])
            .collect(),
        rows,
        text_rows: 0,
    });
}

/// Threads; shown in text only if there are several.
pub(crate) fn threads(counts: &ReuseHistograms, document: &mut Document) {
    document.tables.push(DocumentTable {
        name: "threads",
        title: "Threads".into(),
        columns: columns(&columns![process: Id, thread: Id, A: Count]),
        rows: counts
            .threads
            .iter()
            .map(|(process, thread, accesses, part)| {
                [
                    vec![
                        Value::from(*process),
                        Value::from(*thread),
                        Value::from(*accesses),
                    ],
                    part_cells(part),
                ]
                .concat()
            })
            .collect(),
        text_rows: if counts.threads.len() > 1 {
            usize::MAX
        } else {
            0
        },
    });
}
