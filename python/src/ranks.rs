//! Many traces.

use crate::arrow::PyFrame;
use crate::{failed, failed_by};
use mgz_analyzer::commands::ranks::{key_of, of_trace};
use mgz_analyzer::ranks::view::{document, findings_text};
use mgz_analyzer::ranks::{Gap, Ranks};
use pyo3::prelude::*;
use std::path::PathBuf;

/// Writes what one trace has found to a file, unless the file is there and of the same trace. Tells
/// whether there was something to do.
#[pyfunction]
fn ranks_partial(py: Python<'_>, trace: PathBuf, file: PathBuf, block: u64) -> PyResult<bool> {
    crate::buffer::block_shift(block)?;
    py.detach(|| {
        if let Ok(there) = Ranks::read(&file)
            && let [row] = &there.ranks[..]
            && key_of(&trace, block).is_ok_and(|key| key == row.key)
        {
            return Ok(false);
        }
        let (found, _) = of_trace(&trace, block, true).map_err(failed)?;
        found.write(&file).map_err(|e| failed(e.into()))?;
        Ok(true)
    })
}

/// Merges such files and gaps (what has no result, and why) into a file.
#[pyfunction]
fn ranks_merge(
    py: Python<'_>,
    files: Vec<PathBuf>,
    gaps: Vec<(String, String)>,
    to: PathBuf,
) -> PyResult<()> {
    py.detach(|| {
        let mut all = Ranks::default();
        for file in &files {
            let found = Ranks::read(file).map_err(|e| failed(e.into()))?;
            all.merge(found)
                .map_err(|cause| failed_by(format!("{}: {cause}", file.display())))?;
        }
        let gaps = gaps.into_iter().map(|(input, why)| Gap { input, why });
        let gaps = Ranks {
            gaps: gaps.collect(),
            ..Ranks::default()
        };
        all.merge(gaps).map_err(failed_by)?;
        all.write(&to).map_err(|e| failed(e.into()))
    })
}

/// Results of ranks.
#[pyclass(frozen, module = "mgz._mgz")]
pub(crate) struct RanksResult(Ranks);

#[pymethods]
impl RanksResult {
    /// Reads a file.
    #[new]
    fn new(py: Python<'_>, file: PathBuf) -> PyResult<RanksResult> {
        py.detach(|| {
            let found = Ranks::read(&file).map_err(|e| failed(e.into()))?;
            Ok(RanksResult(found))
        })
    }

    /// The document that `mgz-analyze ranks --format json` prints.
    fn json(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| {
            let value = document(&self.0).json().map_err(failed_by)?;
            serde_json::to_string(&value).map_err(|e| failed_by(e.to_string()))
        })
    }

    /// The tables by name.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, PyFrame)>> {
        py.detach(|| {
            let made = document(&self.0).frames().map_err(failed_by)?;
            Ok(made
                .into_iter()
                .map(|(name, t)| (name, PyFrame(t)))
                .collect())
        })
    }

    /// The output of `mgz-analyze ranks`.
    fn text(&self, py: Python<'_>, rows: usize) -> String {
        py.detach(|| {
            let document = document(&self.0);
            let findings = findings_text(&document, rows);
            findings + &document.text(rows, Some(120))
        })
    }
}

/// Adds the functions.
pub(crate) fn add_ranks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RanksResult>()?;
    module.add_function(wrap_pyfunction!(ranks_partial, module)?)?;
    module.add_function(wrap_pyfunction!(ranks_merge, module)?)
}
