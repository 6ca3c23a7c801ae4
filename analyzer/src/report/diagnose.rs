//! What the numbers say in plain words: a short ranked list, each with the evidence and what to try.
//!
//! Rules are thresholds on rows of the tables; no rule speaks of a row that too few samples have seen. The score is the share of the loads that
//! a finding concerns, times how bad it is there (0 to 1).

use crate::report::{Analysis, LineRow};
use crate::util::human::{bytes, count, number};
use crate::views::objects::ObjectRow;
use serde::Serialize;

/// Findings shown at most.
const MOST: usize = 12;
/// Share of all loads from which a line is worth a word, percent.
const WORTH: f64 = 3.0;
/// Cache capacities of common machines: first level, second level, last level.
pub const CACHES: [(&str, u64); 3] = [
    ("L1", 32 << 10),
    ("L2", 1 << 20),
    ("last-level cache", 32 << 20),
];

/// A finding.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Diagnosis {
    /// `stride`, `irregular`, `streaming`, `capacity`, `sparse_pages` or `interleave`.
    pub kind: &'static str,
    /// What is ranked by.
    pub score: f64,
    /// Function; empty if it concerns the whole run.
    pub function: String,
    /// Source file.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Object that the line loads most, if known.
    pub object: String,
    /// What was found, with the numbers that led to it.
    pub finding: String,
    /// What to try.
    pub advice: String,
}

/// All findings, the most important first.
pub fn diagnose(analysis: &Analysis) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    for line in analysis
        .lines
        .iter()
        .filter(|l| share(l) >= WORTH && is_sure(l))
    {
        found.extend(
            [
                stride(line),
                irregular(line),
                streaming(line),
                sparse_pages(line),
            ]
            .into_iter()
            .flatten()
            .map(|d| named(d, line, analysis)),
        );
    }
    found.extend(interleave(analysis));
    found.extend(capacity(analysis));
    found.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then_with(|| (a.kind, &a.file, a.line).cmp(&(b.kind, &b.file, b.line)))
    });
    found.truncate(MOST);
    found
}

fn named(diagnosis: Diagnosis, line: &LineRow, analysis: &Analysis) -> Diagnosis {
    let loads = |o: &&ObjectRow| {
        let part = o.lines.iter().find(|l| {
            l.line == Some(line.line) && l.file == line.file && l.function == line.function
        });
        part.map_or(0, |p| p.accesses)
    };
    let object = analysis
        .objects
        .iter()
        .max_by_key(loads)
        .filter(|o| loads(o) > 0 && o.kind != "unknown");
    Diagnosis {
        function: line.function.clone(),
        file: line.file.clone(),
        line: line.line,
        object: object.map(|o| o.object.clone()).unwrap_or_default(),
        ..diagnosis
    }
}

fn made(kind: &'static str, score: f64, finding: String, advice: &str) -> Option<Diagnosis> {
    Some(Diagnosis {
        kind,
        score,
        function: String::new(),
        file: String::new(),
        line: 0,
        object: String::new(),
        finding,
        advice: advice.into(),
    })
}

/// The share of the time or of the loads.
fn share(line: &LineRow) -> f64 {
    line.loads.weight()
}

/// Whether a line is worth a word whatever of its share is true.
fn is_sure(line: &LineRow) -> bool {
    match line.loads.time.lo {
        Some(lo) => lo >= WORTH / 3.0,
        None => !line.loads.hats.undersampled,
    }
}

/// A constant stride that skips most of each line.
fn stride(line: &LineRow) -> Option<Diagnosis> {
    let used = line.loads.metrics.line_bytes?;
    let top = line.loads.strides.first()?;
    let step = if top.from == top.to {
        top.from.unsigned_abs()
    } else {
        top.from.unsigned_abs().min(top.to.unsigned_abs())
    };
    if used > 32.0 || top.pct < 50.0 || step < 32 || line.loads.metrics.lines64 < 64 {
        return None;
    }
    made(
        "stride",
        share(line) * (1.0 - used / 64.0),
        format!(
            "{:.0} % of the steps are {}{} bytes, so that each 64-byte line that is fetched serves {used:.0} bytes (over {} lines)",
            top.pct,
            if top.from < 0 { "−" } else { "" },
            if top.from == top.to {
                step.to_string()
            } else {
                format!("at least {step}")
            },
            count(line.loads.metrics.lines64)
        ),
        "exchange the loops so that the inner one walks along memory, or store the elements that are used together next to each other (structure of arrays, or a transposed copy)",
    )
}

/// Data-dependent addresses over much memory, without a pattern.
fn irregular(line: &LineRow) -> Option<Diagnosis> {
    let m = &line.loads.metrics;
    let top = line.loads.strides.first().map_or(0.0, |s| {
        if s.from.unsigned_abs() <= 64 {
            s.pct
        } else {
            s.pct.min(20.0)
        }
    });
    let lines = line.loads.hats.lines64.unwrap_or(m.lines64 as f64);
    let irregular = m.growth_irregular_pct.unwrap_or(0.0);
    let distance = m.distance_mean.unwrap_or(0.0);
    let first = m.first_touches as f64 / (m.first_touches + m.reuses).max(1) as f64;
    if irregular < 80.0
        || top > 60.0
        || lines * 64.0 < CACHES[0].1 as f64 * 2.0
        || (distance < 16.0 && first < 0.3)
    {
        return None;
    }
    let used = m.line_bytes.unwrap_or(64.0);
    made(
        "irregular",
        share(line) * (0.4 + 0.6 * first.max((distance / 512.0).min(1.0))),
        format!(
            "addresses depend on data, over about {} ({} lines) and without a step that prevails (the most frequent has {top:.0} %); D {} on average, {:.0} % of the touches are the first of their sample, {used:.0} bytes used per line",
            bytes((lines * 64.0) as u64),
            number(Some(lines)),
            number(m.distance_mean),
            first * 100.0
        ),
        "hardware prefetchers cannot follow: try a closed (open-addressing) table of the right size instead of chains, smaller nodes, sorted or batched look-ups, or software prefetching",
    )
}

/// Data that is touched once.
fn streaming(line: &LineRow) -> Option<Diagnosis> {
    let m = &line.loads.metrics;
    let once = m.survivals as f64 / m.footprint.max(1) as f64;
    let lines = line.loads.hats.lines64.unwrap_or(m.lines64 as f64);
    // Of the whole run: seldom seen twice may be a matter of sampling, so that the estimate must say it too.
    let per_address =
        line.loads.hats.accesses.unwrap_or(0.0) / line.loads.hats.footprint.unwrap_or(1.0).max(1.0);
    if once < 0.9
        || per_address > 1.5
        || lines * 64.0 < CACHES[1].1 as f64
        || line
            .loads
            .strides
            .first()
            .is_none_or(|s| s.from.unsigned_abs() > 64)
    {
        return None;
    }
    made(
        "streaming",
        share(line) * 0.3,
        format!(
            "{:.0} % of its addresses are loaded once, over about {}; no cache will serve them again",
            once * 100.0,
            bytes((lines * 64.0) as u64)
        ),
        "merge this loop with the one that makes or uses the same data, process it in blocks that fit a cache, or make the elements smaller",
    )
}

/// Few bytes used per page.
fn sparse_pages(line: &LineRow) -> Option<Diagnosis> {
    let m = &line.loads.metrics;
    let per_page = m.bytes as f64 / m.pages.max(1) as f64;
    // Samples see only a part of a page: only what was seen often enough says anything.
    let seen = m.accesses as f64 / m.pages.max(1) as f64;
    if m.pages < 512 || per_page > 256.0 || seen < per_page / 4.0 {
        return None;
    }
    made(
        "sparse_pages",
        share(line) * 0.5,
        format!(
            "{} pages of 4 KiB are touched for {per_page:.0} bytes each: more pages than a TLB holds, for little data",
            count(m.pages)
        ),
        "allocate what is used together from one arena, or use huge pages",
    )
}

/// Lines of memory that two of a function's code lines or more load: counted once too often in the sum of its lines.
fn shared(analysis: &Analysis, of: &LineRow) -> u64 {
    let whole = analysis
        .functions
        .iter()
        .find(|f| (&f.function, &f.module) == (&of.function, &of.module))
        .map(|f| f.loads.metrics.lines64);
    let lines = analysis
        .lines
        .iter()
        .filter(|l| (&l.function, &l.module) == (&of.function, &of.module));
    let sum: u64 = lines.map(|l| l.loads.metrics.lines64).sum();
    // Inlined functions have no row of their own.
    whole.map_or(0, |whole| sum.saturating_sub(whole))
}

/// Lines of a function that load equally often, irregularly, and little per line: arrays with one index.
fn interleave(analysis: &Analysis) -> Vec<Diagnosis> {
    let lines: Vec<&LineRow> = analysis
        .lines
        .iter()
        .filter(|l| {
            share(l) >= WORTH && is_sure(l) && l.loads.metrics.line_bytes.is_some_and(|b| b <= 24.0)
        })
        .filter(|l| {
            l.loads.metrics.growth_irregular_pct.unwrap_or(0.0) >= 80.0
                && l.loads.metrics.lines64 >= 512
                && l.line > 0
        })
        .collect();
    let mut found = Vec::new();
    for (i, a) in lines.iter().enumerate() {
        for b in &lines[i + 1..] {
            let (x, y) = (
                a.loads.metrics.accesses as f64,
                b.loads.metrics.accesses as f64,
            );
            let (p, q) = (
                a.loads.metrics.footprint as f64,
                b.loads.metrics.footprint as f64,
            );
            // What lies together already shares its lines.
            let together =
                || shared(analysis, a) * 2 >= a.loads.metrics.lines64.min(b.loads.metrics.lines64);
            if (&a.function, &a.file) == (&b.function, &b.file)
                && (x - y).abs() < 0.02 * x.max(y)
                && (p - q).abs() < 0.05 * p.max(q)
                && !together()
            {
                let finding = format!(
                    "this line and line {} load equally often ({} and {}) and equally many addresses ({} and {}) irregularly, {:.0} and {:.0} bytes per line: likely arrays with the same index",
                    b.line,
                    count(a.loads.metrics.accesses),
                    count(b.loads.metrics.accesses),
                    count(a.loads.metrics.footprint),
                    count(b.loads.metrics.footprint),
                    a.loads.metrics.line_bytes.unwrap_or(0.0),
                    b.loads.metrics.line_bytes.unwrap_or(0.0)
                );
                let made = made(
                    "interleave",
                    (share(a) + share(b)) * 0.45,
                    finding,
                    "interleave the arrays (array of structures), so that one line serves both loads",
                );
                found.extend(made.map(|d| named(d, a, analysis)));
            }
        }
    }
    found
}

/// Reuse distances just above the capacity of a cache.
fn capacity(analysis: &Analysis) -> Vec<Diagnosis> {
    let s = &analysis.summary;
    let total: u64 = s.distances.iter().map(|b| b.count).sum();
    let touches = total + s.metrics.first_touches;
    CACHES
        .iter()
        .filter_map(|&(name, size)| {
            let blocks = size / s.block;
            // The bins are octaves: the one that begins at the capacity.
            let over: u64 = s.distances.iter().filter(|b| b.from >= blocks && b.from < 2 * blocks).map(|b| b.count).sum();
            let share = over as f64 * 100.0 / touches.max(1) as f64;
            if share < 2.0 {
                return None;
            }
            let function = analysis.functions.iter().filter(|f| f.loads.metrics.distance_p99.is_some_and(|d| d >= blocks as f64)).max_by_key(|f| f.loads.metrics.reuses);
            let mut made = made(
                "capacity",
                share * 0.6,
                format!("{share:.1} % of the touches reuse a block after {} to {} other blocks: just more than the {} of a typical {name}", count(blocks), count(2 * blocks), bytes(size)),
                "make the working set a little smaller: block the loops, use smaller types, or split hot from cold fields",
            )?;
            made.function = function.map(|f| f.function.clone()).unwrap_or_default();
            Some(made)
        })
        .collect()
}
