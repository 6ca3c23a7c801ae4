//! Measured costs of memory: `mgz doctor --measure`, and the measurement before the first run.

use crate::cli;
use anyhow::Context;
use mgz_annotations_schema::memory_costs::{LevelCosts, MemoryCosts, Spread};
use mgz_annotations_schema::tell;
use mgz_collector::machine::{caches, identity, memory_costs};
use mgz_collector::options::ranks::own_rank;
use mgz_collector::util::cache_folder::cache_folder;
use std::fmt::Write;
use std::time::Duration;

/// Time of the measurement before the first run.
const BEFORE_RUN: Duration = Duration::from_millis(1800);
/// Time of a requested measurement.
const ASKED_FOR: Duration = Duration::from_secs(5);
/// This environment variable turns off the measurement before the first run.
const OFF: &str = "MGZ_NO_MEASURE";

/// Measures this machine, prints the result and stores it.
pub fn show(json: bool) -> anyhow::Result<i32> {
    let costs = memory_costs::measure_and_keep(ASKED_FOR)?
        .context("the kernel does not report the caches of this machine, so nothing is measured")?;
    let text = match json {
        true => document(&costs)?,
        false => table(&costs),
    };
    cli::print(text.as_bytes())
}

/// Measures this machine if it was never measured, or if other programs disturbed the measurement.
/// Ranks of a job are skipped, since they would disturb each other.
pub fn before_run() {
    let is_off = std::env::var_os(OFF).is_some_and(|v| !v.is_empty());
    if is_off
        || cache_folder().is_none()
        || own_rank().is_some()
        || !memory_costs::is_to_be_measured()
    {
        return;
    }
    // Without a measurement, latencies are assumed.
    if let Ok(Some(costs)) = memory_costs::measure_and_keep(BEFORE_RUN) {
        tell!("mgz: {}", line(&costs));
    }
}

/// The latencies of all levels in one line.
fn line(costs: &MemoryCosts) -> String {
    let known = |level: &LevelCosts| {
        let latency = costs.latency(level.level, level.size)?;
        Some(format!("{} {}", level.name(), number(latency[1])))
    };
    let levels: Vec<String> = costs.levels.iter().filter_map(known).collect();
    let when = match costs.disturbed {
        true => "while other programs ran, so that a later run measures again",
        false => "for this and later runs",
    };
    format!(
        "latencies of this machine were measured {when}: {} ns",
        levels.join(", ")
    )
}

fn document(costs: &MemoryCosts) -> anyhow::Result<String> {
    let document = serde_json::json!({
        "host": identity::host(),
        "cpu": identity::cpu(),
        "caches": caches::caches(),
        "memory_costs": costs,
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&document)?))
}

fn number(value: f64) -> String {
    match value {
        small if small < 9.95 => format!("{small:.1}"),
        large => format!("{large:.0}"),
    }
}

/// Median, minimum and upper quartile.
fn cell(spread: Option<&Spread>) -> String {
    spread.map_or_else(
        || "-".into(),
        |s| format!("{} ({}–{})", number(s.median), number(s.min), number(s.q3)),
    )
}

/// A table with a row per level.
fn table(costs: &MemoryCosts) -> String {
    let titles = [
        "level",
        "size",
        "latency",
        "huge pages",
        "8 at a time",
        "in sequence",
        "strided",
        "GB/s",
    ];
    let mut rows = vec![titles.map(String::from)];
    rows.extend(costs.levels.iter().map(|level| {
        [
            level.name(),
            size(level.size),
            cell(level.latency_ns.as_ref()),
            cell(level.latency_huge_ns.as_ref()),
            cell(level.parallel_ns.as_ref()),
            cell(level.sequential_ns.as_ref()),
            cell(level.strided_ns.as_ref()),
            cell(level.bandwidth_gbs.as_ref()),
        ]
    }));
    let widths: [usize; 8] = std::array::from_fn(|at| {
        let lengths = rows.iter().map(|row| row[at].chars().count());
        lengths.max().unwrap_or(0)
    });
    let mut text = format!(
        "Measured on {} ({}): nanoseconds per load, median (minimum–upper quartile)\n\n",
        identity::host(),
        identity::cpu()
    );
    for row in rows {
        let cells: Vec<String> = (row.iter().zip(widths))
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text.push('\n');
    if let Some(walk) = &costs.page_walk_ns {
        let _ = writeln!(
            text,
            "a load beyond the TLB takes {} ns more with pages of 4 KiB",
            cell(Some(walk))
        );
    }
    if let Some(far) = costs.levels.last().and_then(|l| l.far_ns.as_ref()) {
        let _ = writeln!(
            text,
            "over 256 MiB in such pages a load from memory takes {} ns",
            cell(Some(far))
        );
    }
    for note in &costs.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn size(bytes: u64) -> String {
    match bytes {
        0 => "-".into(),
        small if small < 1 << 20 => format!("{} KiB", small >> 10),
        large => format!("{} MiB", large >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> MemoryCosts {
        let level = |level, size, ns: f64| LevelCosts {
            level,
            size,
            latency_ns: Spread::of(&[ns, ns + 0.1, ns + 0.2]),
            ..LevelCosts::default()
        };
        MemoryCosts {
            levels: vec![level(1, 48 << 10, 1.6), level(0, 0, 110.0)],
            page_walk_ns: Spread::of(&[7.0]),
            notes: vec!["virtual machine".into()],
            ..MemoryCosts::default()
        }
    }

    #[test]
    fn tables_have_a_row_per_level() {
        let text = table(&costs());
        assert!(text.contains("\nlevel   size    latency"), "{text}");
        assert!(text.contains("\nL1      48 KiB  1.7 (1.6–1.8)"), "{text}");
        assert!(text.contains("\nmemory  -       110 (110–110)"), "{text}");
        assert!(text.contains("takes 7.0 (7.0–7.0) ns more"), "{text}");
        assert!(text.ends_with("note: virtual machine\n"), "{text}");
    }

    #[test]
    fn the_first_run_says_one_line() {
        assert!(line(&costs()).ends_with("later runs: L1 1.7, memory 110 ns"));
        let disturbed = MemoryCosts {
            disturbed: true,
            ..costs()
        };
        assert!(line(&disturbed).contains("so that a later run measures again"));
    }
}
