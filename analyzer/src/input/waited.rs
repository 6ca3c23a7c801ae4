//! Which load each window's thread had waited for: columns of `window_paths.parquet`.

use crate::data::code_map::CodeMap;
use crate::data::frame;
use crate::data::samples::Waited;
use crate::input::quietly;
use mgz_annotations_schema::manifest::WINDOW_PATHS;
use std::path::Path;

/// Reads them. What cannot be read is unknown: whoever reads call paths tells of damage.
pub(crate) fn read(folder: &Path, code: &CodeMap) -> Waited {
    let columns = std::fs::File::open(folder.join(WINDOW_PATHS))
        .ok()
        .and_then(|file| quietly(|| frame::read_parquet(file)).and_then(|r| r).ok())
        .and_then(|table| {
            Some((
                frame::numbers(&table, "sample").ok()?,
                frame::numbers(&table, "waited_module").ok()?,
                frame::numbers(&table, "waited_site").ok()?,
            ))
        });
    let Some((samples, modules, sites)) = columns else {
        return Waited::default();
    };
    let rows = samples.iter().zip(modules.iter().zip(&sites));
    rows.filter_map(|(&sample, (&module, &site))| {
        let site = code.site(module.try_into().ok()?, site.try_into().ok()?);
        (site != u32::MAX).then_some((sample.try_into().ok()?, site))
    })
    .collect()
}
