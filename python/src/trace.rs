//! Traces and the analyzer's results.

use crate::arrow::{Batch, PyFrame, Stream};
use crate::{failed, failed_by};
use arrow_schema::ArrowError;
use clap::Parser;
use mgz_analyzer::cli::Arguments;
use mgz_analyzer::commands::counted::is_counted;
use mgz_analyzer::commands::row_batches::{ROW_COLUMNS, RowColumn, row_type, send};
use mgz_analyzer::commands::{is_watched, refuse_watched};
use mgz_analyzer::data::memory_units::LINE_BYTES;
use mgz_analyzer::filter::Conditions;
use mgz_analyzer::input;
use mgz_analyzer::output::export::export_tables;
use mgz_analyzer::output::paint::Paint;
use mgz_analyzer::output::screen::screen;
use mgz_analyzer::output::text::render;
use mgz_analyzer::output::text_table::Style;
use mgz_analyzer::report;
use mgz_analyzer::report::build::{examine, merge_all, tables_of};
use mgz_analyzer::report::counted::find_counts;
use mgz_annotations_schema::manifest::Cache;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// The options of the command line, parsed and checked like those of `mgz-analyze`.
fn arguments(words: Vec<String>) -> PyResult<Arguments> {
    let line = ["mgz-analyze".to_owned(), ".".to_owned()].into_iter();
    Arguments::try_parse_from(line.chain(words)).map_err(|error| {
        let text = error.render().to_string();
        let sentence = text.split("\n\nUsage").next().unwrap_or(&text);
        failed_by(sentence.trim_start_matches("error: ").trim_end())
    })
}

/// An opened trace.
#[pyclass(frozen, module = "mgz._mgz")]
pub(crate) struct Trace(pub(crate) Arc<input::Trace>);

#[pymethods]
impl Trace {
    #[new]
    fn new(py: Python<'_>, folder: PathBuf, annotations: bool) -> PyResult<Trace> {
        py.detach(|| {
            let trace = input::Trace::open(&folder, annotations).map_err(|e| failed(e.into()))?;
            Ok(Trace(Arc::new(trace)))
        })
    }

    /// `manifest.json` as the analyzer read it.
    fn manifest(&self) -> PyResult<String> {
        serde_json::to_string(&self.0.manifest).map_err(|e| failed_by(e.to_string()))
    }

    /// Analyses it; the words are options of `mgz-analyze`. `caches`: sizes in bytes of fully
    /// associative caches to predict misses of.
    fn analyse(&self, py: Python<'_>, words: Vec<String>, caches: Vec<u64>) -> PyResult<Analysis> {
        let arguments = arguments(words)?;
        let trace = &self.0;
        py.detach(|| {
            if is_watched(&trace.folder) {
                return Err(failed(refuse_watched(&trace.folder, "the analysis")));
            }
            if is_counted(&trace.folder) {
                return Err(failed_by(format!(
                    "{0}: a trace of mgz-record --count has numbers of loads and no rows; see them with mgz-analyze {0}",
                    trace.folder.display()
                )));
            }
            let mut questions = arguments.questions().map_err(failed)?;
            if !caches.is_empty() {
                questions.misses = true;
                questions.caches = fully_associative(&caches);
            }
            if questions.filter.is_empty() {
                let given = arguments.weights_from.as_deref();
                questions.counted = find_counts(trace, given).map_err(failed_by)?;
            }
            let (analysis, _) =
                examine(trace, &questions, &|_| ()).map_err(|e| failed(e.into()))?;
            Ok(Analysis(Arc::new(analysis)))
        })
    }

    /// The rows, read while they are asked for.
    fn rows(&self, columns: Vec<String>, words: Vec<String>) -> PyResult<Stream> {
        let columns = columns.iter().map(|name| RowColumn::of(name));
        let columns: Vec<RowColumn> = columns.collect::<Result<_, _>>().map_err(failed_by)?;
        let conditions = arguments(words)?.filters.conditions();
        let of = row_type(&columns);
        let asked = Arc::new((self.0.clone(), conditions, columns));
        Ok(Stream {
            of,
            start: Arc::new(move || reading(asked.clone())),
        })
    }

    /// Names of the columns of rows.
    #[staticmethod]
    fn row_columns() -> Vec<&'static str> {
        ROW_COLUMNS.iter().map(|c| c.0).collect()
    }
}

/// Starts to read rows, some batches ahead of the consumer.
fn reading(asked: Arc<(Arc<input::Trace>, Conditions, Vec<RowColumn>)>) -> Receiver<Batch> {
    let (sender, receiver) = sync_channel(2);
    let failed = sender.clone();
    // It becomes a C string.
    let error = |sentence: String| ArrowError::ExternalError(sentence.replace('\0', " ").into());
    let started = std::thread::Builder::new()
        .name("mgz rows".into())
        .spawn(move || {
            let (trace, conditions, columns) = &*asked;
            let mut each = |batch| sender.send(Ok(batch)).is_ok();
            let sentence = match send(trace, conditions, columns, &mut each) {
                Ok(damage) if damage.is_empty() => return,
                Ok(damage) => damage.join("\n"),
                Err(error) => format!("{error:#}"),
            };
            // The receiver learns that the data is incomplete.
            let _ = sender.send(Err(error(sentence)));
        });
    if let Err(cause) = started {
        let _ = failed.send(Err(error(format!("cannot start a thread ({cause})"))));
    }
    receiver
}

/// Levels for [`mgz_analyzer::report::questions::Questions`].
fn fully_associative(sizes: &[u64]) -> Vec<Cache> {
    (1..)
        .zip(sizes)
        .map(|(level, &size)| Cache {
            level,
            size,
            ways: size / LINE_BYTES,
            line: LINE_BYTES,
            shared_by: 1,
        })
        .collect()
}

/// Result of an analysis.
#[pyclass(frozen, module = "mgz._mgz")]
pub(crate) struct Analysis(Arc<report::Analysis>);

#[pymethods]
impl Analysis {
    /// The document that `mgz-analyze --format json` prints.
    fn json(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| serde_json::to_string(&*self.0).map_err(|e| failed_by(e.to_string())))
    }

    /// The summary and what else is no table, as JSON.
    fn summary(&self) -> PyResult<String> {
        serde_json::to_string(&self.0.summary).map_err(|e| failed_by(e.to_string()))
    }

    /// The tables by name.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, PyFrame)>> {
        py.detach(|| {
            let made = export_tables(&self.0).map_err(failed_by)?;
            Ok(made
                .into_iter()
                .map(|(name, t)| (name, PyFrame(t)))
                .collect())
        })
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.0.warnings.clone()
    }

    #[getter]
    fn no_finding(&self) -> String {
        self.0.findings.none.clone()
    }

    /// The text of `mgz-analyze`: one screen, or with `all` every table.
    fn text(&self, py: Python<'_>, all: bool, rows: usize) -> String {
        py.detach(|| {
            let style = Style {
                width: Some(120),
                rows,
                misses: false,
                call_paths: false,
                by_path: false,
                paint: Paint::default(),
            };
            if all || self.0.summary.metrics.accesses == 0 {
                render(&self.0, style)
            } else {
                screen(&self.0, style, false)
            }
        })
    }
}

/// Partial results merged, as by `mgz-analyze --merge`.
#[pyfunction]
#[pyo3(name = "merge")]
pub(crate) fn merge_partials(
    py: Python<'_>,
    files: Vec<PathBuf>,
    to: Option<PathBuf>,
) -> PyResult<Analysis> {
    let estimator = arguments(Vec::new())?.estimator;
    py.detach(|| {
        let merged = merge_all(&files).map_err(|e| failed(e.into()))?;
        if let Some(file) = &to {
            merged.write(file).map_err(|e| failed(e.into()))?;
        }
        Ok(Analysis(Arc::new(tables_of(merged, estimator))))
    })
}
