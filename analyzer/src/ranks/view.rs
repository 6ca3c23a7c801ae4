//! Tables of ranks: slow code, the spread of metrics, outliers, and groups of similar ranks.

use crate::columns;
use crate::output::document::{ColumnUnit, Document, DocumentColumn, DocumentTable, maybe, value};
use crate::ranks::groups::{clusters, list_of, outliers};
use crate::ranks::spread::RankSpread;
use crate::ranks::{Gap, METRICS, Metric, RankName, Ranks, RowNames, Spreads};
use crate::util::human::count;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Minimum imbalance of the loads for a finding. Source: Chosen.
const MIN_UNEVEN_IMBALANCE: f64 = 1.1;
/// The kind of that finding.
const UNEVEN_KIND: &str = "imbalance";

fn named(spread: Option<&(u64, RankName)>) -> Value {
    spread.map_or(Value::Null, |(_, name)| name.shown().into())
}

fn first(spread: Option<&(u64, RankName)>, unit: f64) -> Value {
    spread.map_or(Value::Null, |&(v, _)| scaled(v, unit))
}

fn scaled(v: u64, unit: f64) -> Value {
    if unit == 1.0 {
        v.into()
    } else {
        value(v as f64 * unit)
    }
}

/// A table of code or objects: its name, title, first columns, and maximum number of rows in text.
struct Kind {
    name: &'static str,
    title: &'static str,
    columns: &'static [DocumentColumn],
    text_rows: usize,
}

const FUNCTIONS: Kind = Kind {
    name: "functions",
    title: "Functions over ranks, most loads of one rank first",
    columns: &columns![function: Text, module: Text],
    text_rows: usize::MAX,
};
const LINES: Kind = Kind {
    name: "lines",
    title: "Lines over ranks, most loads of one rank first",
    columns: &columns![function: Text, module: Text, file: Text, line: Text],
    text_rows: 0,
};
const OBJECTS: Kind = Kind {
    name: "objects",
    title: "Data objects over ranks, most loads of one rank first",
    columns: &columns![object: Text, kind: Text],
    text_rows: usize::MAX,
};

fn spreads_table(kind: &Kind, rows: &BTreeMap<RowNames, Spreads>, ranks: u64) -> DocumentTable {
    let mut columns = kind.columns.to_vec();
    columns.extend(columns![
        ranks: Count, loads_min: Count, loads_median: Count, loads_mean: Number, loads_max: Count,
        max_rank: Text, imbalance: Number, footprint_median: Count, footprint_max: Count,
        distance_median: Number, distance_max: Number,
    ]);
    let mut order: Vec<(&RowNames, &Spreads)> = rows.iter().collect();
    let heat = |s: &Spreads| s.loads.max.as_ref().map_or(0, |m| m.0);
    order.sort_by(|a, b| heat(b.1).cmp(&heat(a.1)).then_with(|| a.0.cmp(b.0)));
    let row = |(names, s): (&RowNames, &Spreads)| -> Vec<Value> {
        let mut cells: Vec<Value> = names.iter().map(|n| n.as_str().into()).collect();
        // Ranks without the row have none of its loads.
        let least = if s.loads.ranks < ranks {
            0.into()
        } else {
            first(s.loads.min.as_ref(), 1.0)
        };
        cells.extend([
            s.loads.ranks.into(),
            least,
            s.loads.median(ranks).into(),
            maybe(s.loads.mean(ranks)),
            first(s.loads.max.as_ref(), 1.0),
            named(s.loads.max.as_ref()),
            maybe(s.loads.imbalance(ranks)),
            s.footprint.median(s.footprint.ranks).into(),
            first(s.footprint.max.as_ref(), 1.0),
            s.distance
                .median(s.distance.ranks)
                .map_or(Value::Null, |d| scaled(d, 1e-3)),
            first(s.distance.max.as_ref(), 1e-3),
        ]);
        cells
    };
    DocumentTable {
        name: kind.name,
        title: kind.title.into(),
        columns,
        rows: order.into_iter().map(row).collect(),
        text_rows: kind.text_rows,
    }
}

/// One metric over all ranks.
pub(crate) fn metric(ranks: &Ranks, at: usize) -> RankSpread {
    let mut all = RankSpread::default();
    for row in &ranks.ranks {
        if let Some(value) = row.metrics[at] {
            all.merge(RankSpread::of(value, &row.name));
        }
    }
    all
}

/// The finding that one rank has more work than the others, with the code.
fn uneven(ranks: &Ranks, loads: &RankSpread) -> Option<Vec<Value>> {
    let all = ranks.ranks.len() as u64;
    let imbalance = loads
        .imbalance(all)
        .filter(|&i| all > 1 && i >= MIN_UNEVEN_IMBALANCE)?;
    let (most, who) = loads.max.as_ref()?;
    let excess = |rows: &BTreeMap<RowNames, Spreads>| -> Option<(RowNames, f64)> {
        let over = |s: &Spreads| {
            let (most, name) = s.loads.max.as_ref()?;
            (name == who).then(|| Some(*most as f64 - s.loads.mean(all)?))?
        };
        rows.iter()
            .filter_map(|(names, s)| Some((names, over(s)?, s.loads.imbalance(all)?)))
            .filter(|row| row.1 > 0.0)
            .max_by(|a, b| a.1.total_cmp(&b.1).then_with(|| b.0.cmp(a.0)))
            .map(|(names, _, imbalance)| (names.clone(), imbalance))
    };
    let code = excess(&ranks.lines).or_else(|| excess(&ranks.functions));
    let object = excess(&ranks.objects).filter(|o| o.0.get(1).is_some_and(|k| k != "unknown"));
    let of = |at: usize| {
        code.as_ref()
            .and_then(|c| c.0.get(at))
            .cloned()
            .unwrap_or_default()
    };
    let mut sentence = format!(
        "{} of {all} executes {imbalance:.2} times the mean rank's loads (least {}, median {}, greatest {})",
        who.shown(),
        count(loads.min.as_ref().map_or(0, |m| m.0)),
        count(loads.median(all).unwrap_or(0)),
        count(*most),
    );
    if let Some((names, times)) = &code {
        sentence += &format!(
            "; most of what it does more is in {} ({times:.2} times the mean)",
            names[0]
        );
    }
    if let Some((names, times)) = &object {
        sentence += &format!(", on {} ({times:.2} times)", names[0]);
    }
    let waiting = 100.0 * (1.0 - 1.0 / imbalance);
    Some(vec![
        UNEVEN_KIND.into(),
        "one rank has more to do than the others".into(),
        who.shown().into(),
        of(0).into(),
        of(2).into(),
        of(3).into(),
        object.map_or(String::new(), |o| o.0[0].clone()).into(),
        all.into(),
        value(waiting),
        value(waiting),
        sentence.into(),
        format!("deal the work out anew, or by cost instead of by number of elements: where all ranks wait for the slowest, {waiting:.0}% of their time is waiting").into(),
    ])
}

fn findings(ranks: &Ranks, loads: &RankSpread) -> DocumentTable {
    let all = ranks.ranks.len() as u64;
    let mut rows: Vec<Vec<Value>> = uneven(ranks, loads).into_iter().collect();
    let mut order: Vec<_> = ranks.findings.iter().collect();
    order.sort_by(|a, b| b.1.score.sum.cmp(&a.1.score.sum).then_with(|| a.0.cmp(b.0)));
    rows.extend(order.into_iter().map(|(names, finding)| {
        vec![
            names[0].as_str().into(),
            finding.title.as_str().into(),
            named(finding.score.max.as_ref()),
            names[1].as_str().into(),
            names[2].as_str().into(),
            names[3].as_str().into(),
            names[4].as_str().into(),
            finding.score.ranks.into(),
            maybe(finding.score.mean(all).map(|s| s / 100.0)),
            first(finding.score.max.as_ref(), 0.01),
            finding.finding.as_str().into(),
            finding.advice.as_str().into(),
        ]
    }));
    DocumentTable {
        name: "findings",
        title: "Verdicts, the most important first".into(),
        columns: columns![
            kind: Text, title: Text, rank: Text, function: Text, file: Text, line: Text,
            object: Text, ranks: Count, score_mean_pct: Number, score_max_pct: Number,
            finding: Text, advice: Text,
        ]
        .to_vec(),
        rows,
        // The summary shows them as sentences.
        text_rows: 0,
    }
}

fn matrix(ranks: &Ranks, cluster_of: &[usize]) -> DocumentTable {
    let mut columns = columns![
        rank: Id, host: Text, trace: Text, state: Text, program: Text,
    ]
    .to_vec();
    let unit = |metric| match metric {
        Metric::Loads | Metric::Footprint => ColumnUnit::Count,
        Metric::Misses => ColumnUnit::Share,
        _ => ColumnUnit::Number,
    };
    columns.extend(METRICS.map(|(metric, name, _)| DocumentColumn(name, unit(metric))));
    columns.push(DocumentColumn("cluster", ColumnUnit::Id));
    let rows = ranks.ranks.iter().zip(cluster_of).map(|(row, &cluster)| {
        let mut cells = vec![
            row.name.rank.into(),
            row.name.host.as_str().into(),
            row.name.trace.as_str().into(),
            row.state.as_str().into(),
            row.program_status.as_str().into(),
        ];
        cells.extend(
            row.metrics
                .iter()
                .zip(METRICS)
                .map(|(v, (_, _, unit))| v.map_or(Value::Null, |v| scaled(v, unit))),
        );
        cells.push((cluster as u64).into());
        cells
    });
    DocumentTable {
        name: "ranks",
        title: "Ranks".into(),
        columns,
        rows: rows.collect(),
        text_rows: usize::MAX,
    }
}

fn heat(ranks: &Ranks) -> DocumentTable {
    let rows = ranks.heat.iter().flat_map(|(label, row)| {
        row.loads.iter().enumerate().map(move |(column, &loads)| {
            let sum = row.distances.get(column).copied().unwrap_or(0);
            vec![
                label.as_str().into(),
                (column as u64).into(),
                loads.into(),
                maybe((loads > 0).then(|| sum as f64 / loads as f64)),
            ]
        })
    });
    DocumentTable {
        name: "heat_map",
        title: "Loads by object and part of the run, of all ranks".into(),
        columns: columns![label: Text, column: Id, loads: Count, distance_mean: Number].to_vec(),
        rows: rows.collect(),
        text_rows: 0,
    }
}

/// Ranks of the job without a result, if the launcher set the number of ranks.
fn missing(ranks: &Ranks) -> Vec<u32> {
    let world = ranks.ranks.iter().filter_map(|r| r.world_size).max();
    let there: BTreeSet<u32> = ranks.ranks.iter().filter_map(|r| r.name.rank).collect();
    (0..world.unwrap_or(0))
        .filter(|rank| !there.contains(rank))
        .collect()
}

/// Inputs without a result, and the reasons.
fn gaps_table(gaps: &[Gap]) -> DocumentTable {
    DocumentTable {
        name: "gaps",
        title: "What has no result".into(),
        columns: columns![input: Text, why: Text].to_vec(),
        rows: gaps
            .iter()
            .map(|gap| vec![gap.input.as_str().into(), gap.why.as_str().into()])
            .collect(),
        text_rows: usize::MAX,
    }
}

/// All tables.
pub fn document(ranks: &Ranks) -> Document {
    let mut document = Document::new("ranks");
    let all = ranks.ranks.len() as u64;
    let spreads: Vec<RankSpread> = (0..METRICS.len()).map(|at| metric(ranks, at)).collect();
    let missing = missing(ranks);
    document.put("ranks", ColumnUnit::Count, all);
    let worlds = ranks.ranks.iter().filter_map(|r| r.world_size).max();
    document.put("world_size", ColumnUnit::Count, worlds);
    document.put("loads", ColumnUnit::Count, spreads[0].sum);
    document.put(
        "imbalance",
        ColumnUnit::Number,
        maybe(spreads[0].imbalance(all)),
    );
    if !missing.is_empty() {
        document.put("missing_ranks", ColumnUnit::Text, list_of(&missing));
    }
    document.put("gaps", ColumnUnit::Count, ranks.gaps.len() as u64);
    let findings = findings(ranks, &spreads[0]);
    document.tables.push(findings);
    document.tables.push(gaps_table(&ranks.gaps));
    let rows = METRICS
        .iter()
        .zip(&spreads)
        .filter(|(_, s)| s.ranks > 0)
        .map(|(&(_, name, unit), s)| {
            vec![
                name.into(),
                s.ranks.into(),
                first(s.min.as_ref(), unit),
                named(s.min.as_ref()),
                s.median(s.ranks)
                    .map_or(Value::Null, |v| value(v as f64 * unit)),
                maybe(s.mean(s.ranks).map(|m| m * unit)),
                first(s.max.as_ref(), unit),
                named(s.max.as_ref()),
                maybe(s.imbalance(s.ranks)),
            ]
        });
    document.tables.push(DocumentTable {
        name: "metrics",
        title: "Metrics over ranks".into(),
        columns: columns![
            metric: Text, ranks: Count, min: Number, min_rank: Text, median: Number, mean: Number,
            max: Number, max_rank: Text, imbalance: Number,
        ]
        .to_vec(),
        rows: rows.collect(),
        text_rows: usize::MAX,
    });
    document
        .tables
        .push(spreads_table(&FUNCTIONS, &ranks.functions, all));
    document
        .tables
        .push(spreads_table(&OBJECTS, &ranks.objects, all));
    document.tables.push(outliers(ranks));
    let (table, cluster_of) = clusters(ranks);
    document.tables.push(table);
    document.tables.push(matrix(ranks, &cluster_of));
    document
        .tables
        .push(spreads_table(&LINES, &ranks.lines, all));
    document.tables.push(heat(ranks));
    if !missing.is_empty() {
        document.warnings.push(format!(
            "of {} ranks {} have no result here: {}",
            worlds.unwrap_or(0),
            missing.len(),
            list_of(&missing)
        ));
    }
    for gap in &ranks.gaps {
        document
            .warnings
            .push(format!("{}: {}", gap.input, gap.why));
    }
    for (sentence, of) in &ranks.warnings {
        document.warnings.push(if all == 1 {
            sentence.clone()
        } else {
            format!("{of} of {all} ranks: {sentence}")
        });
    }
    document
}

/// The findings as text, one paragraph each.
pub fn findings_text(document: &Document, most: usize) -> String {
    let mut out = String::new();
    let rows = document.tables.iter().find(|t| t.name == "findings");
    for (number, row) in (1..).zip(rows.iter().flat_map(|t| &t.rows).take(most)) {
        let text = |at: usize| row[at].as_str().unwrap_or_default();
        let number_of = |at: usize| row[at].as_f64().unwrap_or(0.0);
        let place = match (text(3), text(4), text(5)) {
            ("", ..) => String::new(),
            (function, "", _) => format!(" in {function}"),
            (function, file, line) => format!(" in {function} ({file}:{line})"),
        };
        let cost = if text(0) == UNEVEN_KIND {
            format!("up to {:.0}% of the time of all ranks", number_of(9))
        } else {
            let ranks = number_of(7);
            let plural = if ranks == 1.0 { "" } else { "s" };
            format!(
                "up to {:.0}% ({}), in {ranks} rank{plural}",
                number_of(9),
                text(2)
            )
        };
        out += &format!(
            "{number}. {}{place}: {cost}\n   {}\n   try: {}\n",
            text(1),
            text(10),
            text(11),
        );
    }
    out
}
