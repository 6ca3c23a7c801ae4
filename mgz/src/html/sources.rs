//! Source lines with loads, and a few lines around them.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Lines shown on either side of a line with loads. Source: Chosen.
const LINES_AROUND: u64 = 4;
/// Larger files are not shown, bytes.
const FILE_BYTES: u64 = 16 << 20;
/// Longer lines are cut, characters.
const LINE_CHARS: usize = 400;
/// Maximum amount of source in a report, bytes.
const ALL_BYTES: usize = 24 << 20;

/// By path: `lines`, number and text of each; `changed`, if the file is newer than the recording;
/// or `missing`, the reason why there are none.
pub fn source_lines(lines: &[Value], manifest: &Value) -> Value {
    let recorded = manifest["started"].as_str().and_then(seconds);
    let mut left = ALL_BYTES;
    excerpts(lines.iter(), recorded, &mut left)
}

/// Source lines of both sides of a comparison (`base` and `new`), in the form of [`source_lines`].
/// The base has no lines of files that have changed since its recording: they differ from the
/// recorded ones, and the new side has them.
pub fn of_comparison(found: &Value) -> Value {
    let mut left = ALL_BYTES;
    let mut side = |name: &str| {
        let runs = found["pictures"][name].as_array();
        let runs = runs.map(Vec::as_slice).unwrap_or_default();
        let started = runs
            .iter()
            .filter_map(|run| seconds(run["started"].as_str()?));
        // A file that was changed after the first run began may differ from the one that was run.
        let first = started.min();
        let lines = runs.iter().filter_map(|run| run["lines"].as_array());
        excerpts(lines.flatten(), first, &mut left)
    };
    let (new, mut base) = (side("new"), side("base"));
    for (_, file) in base.as_object_mut().into_iter().flatten() {
        if file["changed"] == true {
            *file = json!({ "missing": "it was changed after the base was recorded" });
        }
    }
    json!({ "base": base, "new": new })
}

fn excerpts<'a>(
    lines: impl Iterator<Item = &'a Value>,
    recorded: Option<u64>,
    left: &mut usize,
) -> Value {
    let mut files: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for row in lines {
        let (Some(file), Some(line)) = (row["file"].as_str(), row["line"].as_u64()) else {
            continue;
        };
        if file.is_empty() || line == 0 {
            continue;
        }
        let shown = files.entry(file).or_insert_with(|| {
            order.push(file);
            BTreeSet::new()
        });
        shown.extend(line.saturating_sub(LINES_AROUND).max(1)..=line.saturating_add(LINES_AROUND));
    }
    let mut out = Map::new();
    // The rows are sorted, those with the most loads first.
    for file in order {
        let found = excerpt(Path::new(file), &files[file], recorded, left);
        let value = found.unwrap_or_else(|why| json!({ "missing": why }));
        out.insert(file.to_string(), value);
    }
    Value::Object(out)
}

fn excerpt(
    file: &Path,
    shown: &BTreeSet<u64>,
    recorded: Option<u64>,
    left: &mut usize,
) -> Result<Value, String> {
    if !file.is_absolute() {
        return Err("its path is relative to an unknown folder".into());
    }
    let meta = std::fs::metadata(file).map_err(|e| e.to_string())?;
    if !meta.is_file() || meta.len() > FILE_BYTES {
        return Err("it is no source file, or too large".into());
    }
    let bytes = std::fs::read(file).map_err(|e| e.to_string())?;
    let mut lines = Vec::new();
    for (number, line) in (1u64..).zip(bytes.split(|&b| b == b'\n')) {
        if !shown.contains(&number) {
            continue;
        }
        let text: String = String::from_utf8_lossy(line)
            .trim_end()
            .chars()
            .take(LINE_CHARS)
            .collect();
        *left = left
            .checked_sub(text.len())
            .ok_or("the report holds much source already")?;
        lines.push(json!([number, text]));
    }
    let changed = meta
        .modified()
        .ok()
        .zip(recorded)
        .is_some_and(|(time, recorded)| {
            time > SystemTime::UNIX_EPOCH + Duration::from_secs(recorded + 1)
        });
    Ok(json!({ "lines": lines, "changed": changed }))
}

/// Seconds since 1970 of `2026-11-27T01:26:52Z`.
fn seconds(text: &str) -> Option<u64> {
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
    // Days since a year that begins with March, so that leap days come last.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    u64::try_from(days * 86_400 + hour * 3600 + minute * 60 + second).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("2000-02-29T12:00:01Z"), Some(951_825_601));
        assert_eq!(seconds("2026-11-27T01:26:52Z"), Some(1_795_742_812));
        assert_eq!(seconds("yesterday"), None);
    }

    #[test]
    fn only_lines_around_hits_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.c");
        let text: String = (1..=100).map(|n| format!("line {n}\n")).collect();
        std::fs::write(&file, text).unwrap();
        let name = file.to_str().unwrap();
        let rows = [
            json!({"file": name, "line": 2}),
            json!({"file": name, "line": 50}),
            json!({"file": name, "line": 0}),
            json!({"file": "/no/such.c", "line": 1}),
            json!({"file": "rel.c", "line": 1}),
            json!({"file": "/dev/zero", "line": 1}),
        ];
        let found = source_lines(&rows, &json!({"started": "2000-01-01T00:00:00Z"}));
        let lines = found[name]["lines"].as_array().unwrap();
        assert_eq!(lines.len(), 6 + 9);
        assert_eq!(lines[0], json!([1, "line 1"]));
        assert_eq!(found[name]["changed"], true);
        for other in ["/no/such.c", "rel.c", "/dev/zero"] {
            assert!(found[other]["missing"].is_string(), "{other}");
        }
        let found = source_lines(&rows, &json!({"started": "2999-01-01T00:00:00Z"}));
        assert_eq!(found[name]["changed"], false);
    }

    #[test]
    fn both_sides_of_a_comparison_have_lines_as_they_were_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.c");
        std::fs::write(&file, "one\ntwo\n").unwrap();
        let name = file.to_str().unwrap();
        let run =
            |started: &str| json!([{"started": started, "lines": [{"file": name, "line": 2}]}]);
        let (early, late) = ("2000-01-01T00:00:00Z", "2999-01-01T00:00:00Z");
        let found = of_comparison(&json!({"pictures": {"base": run(late), "new": run(late)}}));
        for side in ["base", "new"] {
            assert_eq!(found[side][name]["lines"][1], json!([2, "two"]), "{side}");
        }
        let found = of_comparison(&json!({"pictures": {"base": run(early), "new": run(late)}}));
        assert!(found["base"][name]["missing"].is_string());
        assert_eq!(found["new"][name]["changed"], false);
        // The new side's files may be newer than its run; then they are marked as changed.
        let found = of_comparison(&json!({"pictures": {"base": run(late), "new": run(early)}}));
        assert_eq!(found["new"][name]["changed"], true);
        let none = json!({"base": {}, "new": {}});
        assert_eq!(of_comparison(&json!({})), none);
    }
}
