//! Predicted and measured gains of all fixes on this machine, so that predictions can be scored.
//!
//! `fixes` in the cache folder is a text file with one JSON object per line and remedy.

use crate::fix::document::{Document, Measured, Outcome, Saved, Subject, Tried};
use mgz_collector::machine::identity;
use mgz_collector::util::cache_folder::cache_folder;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the file in the cache folder.
const FILE: &str = "fixes";
/// This environment variable turns the records off.
const OFF: &str = "MGZ_NO_KEEP";

/// Adds the measured remedies of a fix. If the cache is not writable, nothing is recorded.
pub fn keep(program: &Subject, tried: &[Tried]) {
    append(
        &tried
            .iter()
            .filter_map(|t| line(program, t))
            .collect::<String>(),
    );
}

/// Adds the result of a whole fix, with both programs, so that comparisons of their traces can use
/// it.
pub fn keep_whole(document: &Document) {
    let kept = (document.candidates.iter()).filter(|t| t.outcome == Outcome::Kept);
    let remedies: Vec<&Tried> = kept.collect();
    let record = json!({
        "time": now(),
        "mgz": env!("CARGO_PKG_VERSION"),
        "cpu": document.cpu,
        "program": document.program,
        "fixed": document.fixed,
        "files": document.source.as_ref().map(|s| &s.files),
        "remedies": remedies.iter().map(|t| &t.remedy).collect::<Vec<_>>(),
        "predicted": document.predicted.map(ends),
        "measured": ends(document.result.saved),
        "pairs": document.result.pairs,
        "outcome": "fix",
    });
    append(&format!("{record}\n"));
}

/// Predicted gain of the kept remedies together: each saves its share of the remaining time. `None`
/// if one of them is unknown.
pub fn predicted_together(tried: &[Tried]) -> Option<Saved> {
    let remedies: Vec<&Tried> = (tried.iter())
        .filter(|t| t.outcome == Outcome::Kept)
        .collect();
    let product = |of: fn(&Saved) -> f64| -> Option<f64> {
        let left = remedies
            .iter()
            .map(|t| Some(1.0 - of(t.predicted.as_ref()?) / 100.0));
        Some(100.0 * (1.0 - left.product::<Option<f64>>()?))
    };
    Some(Saved {
        saved_pct: product(|s| s.saved_pct)?,
        saved_pct_lo: product(|s| s.saved_pct_lo)?,
        saved_pct_hi: product(|s| s.saved_pct_hi)?,
    })
}

fn ends(s: Saved) -> Value {
    json!({"saved_pct": s.saved_pct, "saved_pct_lo": s.saved_pct_lo, "saved_pct_hi": s.saved_pct_hi})
}

/// Seconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |t| t.as_secs())
}

/// Adds lines to the file.
fn append(lines: &str) {
    let is_off = std::env::var_os(OFF).is_some_and(|v| !v.is_empty());
    let Some(folder) = cache_folder().filter(|_| !is_off && !lines.is_empty()) else {
        return;
    };
    let opened = std::fs::create_dir_all(&folder).and_then(|()| {
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(folder.join(FILE))
    });
    // Lines of two commands are written whole, each by one call.
    if let Ok(mut file) = opened {
        let _ = file.write_all(lines.as_bytes());
    }
}

/// The record of a measured remedy.
fn line(program: &Subject, tried: &Tried) -> Option<String> {
    let measured: Measured = tried.measured?;
    let name = Path::new(&program.path).file_name();
    let record: Value = json!({
        "time": now(),
        "mgz": env!("CARGO_PKG_VERSION"),
        "cpu": identity::cpu(),
        "program": name.map(|n| n.to_string_lossy()),
        "build_id": program.build_id,
        "finding": tried.finding,
        "remedy": tried.remedy,
        "predicted": tried.predicted.map(ends),
        "measured": ends(measured.saved),
        "pairs": measured.pairs,
        "outcome": tried.outcome,
    });
    Some(format!("{record}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::document::{Cause, Recipe};

    #[test]
    fn gains_together_are_of_what_the_others_leave() {
        let tried = |saved: Option<f64>| Tried {
            finding: Cause::default(),
            remedy: String::new(),
            predicted: saved.map(|saved_pct| Saved {
                saved_pct,
                saved_pct_lo: 0.0,
                saved_pct_hi: saved_pct,
            }),
            measured: None,
            outcome: Outcome::Kept,
            reason: String::new(),
            recipe: Recipe::default(),
            patch: String::new(),
            words: String::new(),
        };
        let both = [tried(Some(50.0)), tried(Some(20.0))];
        let saved = predicted_together(&both).unwrap();
        assert_eq!((saved.saved_pct, saved.saved_pct_lo), (60.0, 0.0));
        let unknown = [tried(Some(50.0)), tried(None)];
        assert_eq!(predicted_together(&unknown), None);
    }
}
