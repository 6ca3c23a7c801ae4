//! Position of each window's thread at its begin: the load that it had waited for, and its
//! function. They are columns of `window_paths.parquet`.

use crate::data::code_map::CodeMap;
use crate::data::frame;
use crate::data::samples::Waited;
use crate::input::quietly;
use mgz_annotations_schema::manifest::WINDOW_PATHS;
use std::collections::HashMap;
use std::path::Path;

/// Reads the positions. Unreadable ones are unknown; the reader of call paths reports the damage.
pub(crate) fn read_waited(folder: &Path, code: &CodeMap) -> Waited {
    let table = std::fs::File::open(folder.join(WINDOW_PATHS))
        .ok()
        .and_then(|file| quietly(|| frame::read_parquet(file)).and_then(|r| r).ok());
    let Some(table) = table else {
        return Waited::default();
    };
    let loads = |module: &str, site: &str| -> Option<HashMap<u32, u32>> {
        let samples = frame::numbers(&table, "sample").ok()?;
        let modules = frame::numbers(&table, module).ok()?;
        let sites = frame::numbers(&table, site).ok()?;
        let rows = samples.iter().zip(modules.iter().zip(&sites));
        let known = rows.filter_map(|(&sample, (&module, &site))| {
            let site = code.site(module.try_into().ok()?, site.try_into().ok()?);
            (site != u32::MAX).then_some((sample.try_into().ok()?, site))
        });
        Some(known.collect())
    };
    Waited::new(
        loads("waited_module", "waited_site").unwrap_or_default(),
        // Older traces lack it.
        loads("within_module", "within_site").unwrap_or_default(),
        code.pieces.iter().map(|piece| piece.function).collect(),
    )
}
