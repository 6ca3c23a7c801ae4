//! Predicted and measured gains of all fixes on this machine, so that predictions can be scored.
//!
//! `fixes` in the cache folder is a text file with one JSON object per line and remedy.

use crate::fix::document::{Measured, Saved, Subject, Tried};
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
/// This variable turns the records off.
const OFF: &str = "MGZ_NO_KEEP";

/// Adds the measured remedies of a fix. A cache that cannot be written to has none.
pub fn keep(program: &Subject, tried: &[Tried]) {
    let is_off = std::env::var_os(OFF).is_some_and(|v| !v.is_empty());
    let lines: String = tried.iter().filter_map(|t| line(program, t)).collect();
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
    let ends = |s: Saved| json!({"saved_pct": s.saved_pct, "saved_pct_lo": s.saved_pct_lo, "saved_pct_hi": s.saved_pct_hi});
    let name = Path::new(&program.path).file_name();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let record: Value = json!({
        "time": now.map_or(0, |t| t.as_secs()),
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
