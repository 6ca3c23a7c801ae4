//! Executed loads of a counted run, read from `counts.parquet`.

use crate::data::frame;
use crate::input::{Trace, quietly};
use mgz_annotations_schema::manifest::COUNTS;
use std::collections::HashMap;

/// Executed loads by line piece of the trace's code. An error is part of a sentence for the user.
pub(crate) fn read_executions(trace: &Trace) -> Result<HashMap<u32, f64>, String> {
    let path = trace.folder.join(COUNTS);
    let file = std::fs::File::open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let table = quietly(|| frame::read_parquet(file))
        .and_then(|r| r)
        .map_err(|e| format!("{} is damaged ({e})", path.display()))?;
    let column = |name: &'static str| {
        frame::whole(&table, name).map_err(|e| format!("{} is damaged ({e})", path.display()))
    };
    let (modules, sites, loads) = (column("module")?, column("site")?, column("loads")?);
    let mut sums: HashMap<u32, f64> = HashMap::new();
    for ((module, site), loads) in modules.iter().zip(&sites).zip(&loads) {
        let (Some(module), Some(site), Some(loads)) = (*module, *site, *loads) else {
            continue;
        };
        let Ok(module) = u16::try_from(module) else {
            continue;
        };
        let (pieces, unknown, _) = trace.code.pieces_of(module);
        let piece = pieces.get(site as usize).copied().unwrap_or(unknown);
        *sums.entry(piece).or_default() += loads as f64;
    }
    Ok(sums)
}
