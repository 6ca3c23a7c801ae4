//! Reader of `reuse_pairs.parquet`: words that were watched after samples.

use crate::data::code_map::CodeMap;
use crate::data::frame::{self, Frame};
use crate::data::reuse_pairs::{ReusePair, WatchEnd};
use crate::input::quietly;
use mgz_annotations_schema::manifest::REUSE_PAIRS;
use std::path::Path;

/// Maximum number of watches; more are damage. Source: Chosen.
const MAX_WATCHES: usize = 1 << 26;
/// Bound of a thread's CPU time: 36 years.
const MAX_CPU_NS: u64 = 1 << 60;

/// Reads the watches. `Ok(None)` if there are none. An error is a sentence for the user.
pub fn read_reuse_pairs(folder: &Path, code: &CodeMap) -> Result<Option<Vec<ReusePair>>, String> {
    let path = folder.join(REUSE_PAIRS);
    let file = match std::fs::File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(format!(
                "{}: {error}; misses are predicted without reuses seen by watchpoints",
                path.display()
            ));
        }
    };
    quietly(|| frame::read_parquet(file))
        .and_then(|r| r)
        .and_then(|table| pairs(&table, code))
        .map(Some)
        .map_err(|e| {
            format!(
                "{}: damaged ({e}); misses are predicted without reuses seen by watchpoints; record again",
                path.display()
            )
        })
}

fn pairs(table: &Frame, code: &CodeMap) -> Result<Vec<ReusePair>, String> {
    if table.height() > MAX_WATCHES {
        return Err(format!("{} rows", table.height()));
    }
    let [samples, addresses, times, modules, sites] =
        ["sample", "address", "cpu_ns", "module", "site"].map(|name| frame::numbers(table, name));
    let (samples, addresses, times) = (samples?, addresses?, times?);
    let (modules, sites) = (modules?, sites?);
    let reused = frame::flags(table, "reused")?;
    let load = |row: usize| {
        let site = code.site(modules[row].try_into().ok()?, sites[row].try_into().ok()?);
        code.site_group(site)
    };
    (0..table.height())
        .map(|row| {
            let sample = samples[row]
                .try_into()
                .map_err(|_| format!("sample {}", samples[row]))?;
            if times[row] > MAX_CPU_NS {
                return Err(format!("{} ns", times[row]));
            }
            Ok(ReusePair {
                number: row as u32,
                sample,
                address: addresses[row],
                cpu_ns: times[row],
                end: match (reused[row], load(row)) {
                    (true, Some(group)) => WatchEnd::Load(group),
                    (true, None) => WatchEnd::Other,
                    (false, _) => WatchEnd::GivenUp,
                },
            })
        })
        .collect()
}
