//! Load instructions with rows in a trace, and those that other files of the trace name.
//!
//! A trace covers little of the code of large modules. Names and counts are kept only for the
//! functions seen.

use crate::data::code_map::Sites;
use crate::data::frame;
use crate::input::catch_panic::quietly;
use crate::input::parquet::RowGroup;
use mgz_annotations_schema::manifest::{REUSE_PAIRS, WINDOW_PATHS};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

/// Columns of a module's number and of a site.
type Columns = (&'static str, &'static str);

/// Files other than the rows that name load instructions.
const BESIDE_ROWS: [(&str, &[Columns]); 2] = [
    (REUSE_PAIRS, &[("module", "site")]),
    (
        WINDOW_PATHS,
        &[
            ("waited_module", "waited_site"),
            ("within_module", "within_site"),
        ],
    ),
];
/// The sites of each module.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SeenSites(BTreeMap<usize, Sites>);

impl SeenSites {
    /// Reads the sites. `None` if a part of the trace cannot be read.
    pub(crate) fn read(folder: &Path, pieces: &[RowGroup]) -> Option<SeenSites> {
        let of_rows: Vec<Option<SeenSites>> = pieces.par_iter().map(SeenSites::of_rows).collect();
        let mut all = SeenSites::default();
        for of_piece in of_rows {
            all.merge(of_piece?);
        }
        for (file, columns) in BESIDE_ROWS {
            all.add_table(&folder.join(file), columns);
        }
        Some(all)
    }

    fn of_rows(piece: &RowGroup) -> Option<SeenSites> {
        let read = || {
            let modules = piece.steps::<u16>("module")?;
            Ok::<_, String>((modules, piece.numbers::<u32>("site")?))
        };
        let (modules, sites) = quietly(read).and_then(|r| r).ok()?;
        let mut seen = SeenSites::default();
        let mut rest = &sites[..];
        for (module, rows) in modules.runs() {
            let (of_run, behind) = rest.split_at(rows.min(rest.len()));
            rest = behind;
            seen.0.entry(module as usize).or_default().extend(of_run);
        }
        Some(seen)
    }

    /// Adds the sites of a table. A missing or damaged table adds none; its reader reports the
    /// damage.
    fn add_table(&mut self, path: &Path, columns: &[Columns]) {
        let table = std::fs::File::open(path)
            .ok()
            .and_then(|file| quietly(|| frame::read_parquet(file)).and_then(|r| r).ok());
        let Some(table) = table else { return };
        for (module, site) in columns {
            let (Ok(modules), Ok(sites)) =
                (frame::numbers(&table, module), frame::numbers(&table, site))
            else {
                continue;
            };
            for (&module, &site) in modules.iter().zip(&sites) {
                if let (Ok(module), Ok(site)) = (usize::try_from(module), u32::try_from(site)) {
                    self.0.entry(module).or_default().insert(site);
                }
            }
        }
    }

    fn merge(&mut self, other: SeenSites) {
        for (module, sites) in other.0 {
            self.0.entry(module).or_default().extend(sites);
        }
    }

    /// Moves the sites of modules with the same sidecar to the first of these modules. `first` has
    /// the first one for each module.
    pub(crate) fn united(self, first: &[usize]) -> SeenSites {
        let mut united = SeenSites::default();
        for (module, sites) in self.0 {
            let to = first.get(module).copied().unwrap_or(module);
            united.0.entry(to).or_default().extend(sites);
        }
        united
    }

    /// The sites of a module; none if no load of it was seen.
    pub(crate) fn of(&self, module: usize) -> Option<&Sites> {
        self.0.get(&module)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_with_one_sidecar_are_one() {
        let of = |module: usize, sites: &[u32]| (module, sites.iter().copied().collect());
        let mut seen = SeenSites([of(2, &[3]), of(0, &[1]), of(7, &[9])].into());
        seen.merge(SeenSites([of(1, &[0]), of(0, &[5])].into()));
        let united = SeenSites([of(0, &[1, 3, 5]), of(1, &[0]), of(7, &[9])].into());
        assert_eq!(seen.united(&[0, 1, 0]), united);
        assert_eq!(united.of(2), None);
    }
}
