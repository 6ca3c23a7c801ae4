//! The trace folder: opening it, reading its rows piece by piece.

pub(crate) mod byte_split;
pub mod call_paths;
pub(crate) mod catch_panic;
pub mod counted;
pub(crate) mod executions;
pub mod measured;
pub(crate) mod number;
pub mod objects;
mod pages;
pub(crate) mod parquet;
pub(crate) mod plain_column;
pub mod reuse_pairs;
pub mod row_slices;
pub(crate) mod run_length;
mod seen_sites;
pub(crate) mod selection;
pub mod source;
mod spill;
pub mod trace_error;
pub(crate) mod waited;
pub mod weights;

pub use crate::input::catch_panic::quietly;
pub use crate::input::parquet::{ColumnSet, arrow_type};

use crate::data::code_map::CodeMap;
use crate::data::samples::Waited;
use crate::input::seen_sites::SeenSites;
use crate::input::source::ChunkSource;
use crate::input::trace_error::TraceError;
use mgz_annotations_schema::manifest::{
    COMMAND_OF_RUN, MANIFEST, Manifest, SAMPLES_DIR, SPILL_DIR, TRACE_FORMAT, TRACE_VERSION,
};
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_annotations_schema::spill::SPILL_EXTENSION;
use mgz_annotations_schema::{RowsIn, TraceState};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// An opened trace.
pub struct Trace {
    /// The folder.
    pub folder: PathBuf,
    /// `manifest.json`.
    pub manifest: Manifest,
    /// Names of functions and lines.
    pub code: CodeMap,
    /// Sentences for the user on missing data.
    pub warnings: Vec<String>,
    /// Damage: the skipped parts. The analysis continues; the exit status is 1.
    pub damage: Vec<String>,
    data: Data,
    waited: Waited,
}

/// Place of the rows.
enum Data {
    Parts(Vec<crate::input::parquet::RowGroup>),
    Spill(Box<spill::Spill>),
}

impl Trace {
    /// The command line as the user gave it. The manifest of `mgz run` has that of the instrumented
    /// copy.
    pub fn command(&self) -> Vec<String> {
        match command_of_run(&self.folder) {
            unknown if unknown.is_empty() => self.manifest.command.clone(),
            told => told,
        }
    }

    /// By sample: the load right before its trigger, if it is known.
    pub(crate) fn waited(&self) -> &Waited {
        &self.waited
    }

    /// Opens a folder. With `annotations` false, sidecars are not read.
    pub fn open(folder: &Path, annotations: bool) -> Result<Trace, TraceError> {
        Trace::open_with(folder, |_| annotations, true, false)
    }

    /// As [`Trace::open`], but only code with samples is named. Other code cannot be found in the
    /// result.
    pub fn open_seen(folder: &Path, annotations: bool) -> Result<Trace, TraceError> {
        Trace::open_with(folder, |_| annotations, true, true)
    }

    /// Opens a trace whose first rows went to an analysis while the program ran.
    pub fn open_rest(folder: &Path, annotations: bool) -> Result<Trace, TraceError> {
        Trace::open_with(folder, |spilled| annotations || spilled, false, false)
    }

    /// Opens a folder without names of code: sidecars are read only if rows cannot be read without
    /// them.
    pub fn open_nameless(folder: &Path) -> Result<Trace, TraceError> {
        Trace::open_with(folder, |spilled| spilled, true, false)
    }

    /// `annotations` is called with true if rows are in spill files, and returns true if sidecars
    /// are to be read. `whole` is true if all rows must exist, and `seen` if code without samples
    /// needs no names.
    fn open_with(
        folder: &Path,
        annotations: impl Fn(bool) -> bool,
        whole: bool,
        seen: bool,
    ) -> Result<Trace, TraceError> {
        let manifest = read_manifest(folder)?;
        let mut warnings = Vec::new();
        match &manifest.state {
            TraceState::Complete => {}
            TraceState::Running => warnings.push(
                "the manifest says that the recording is still running, or that the recorder was killed; what is on disk so far is analysed".into(),
            ),
            TraceState::Interrupted => warnings.push("the recording was interrupted; what was written before is analysed".into()),
            TraceState::Partial => warnings.push("the trace is incomplete (see the problems below); what is there is analysed".into()),
            TraceState::Unknown(other) => {
                warnings.push(format!("the manifest has the unknown state {other:?}"));
            }
        }
        warnings.extend(manifest.problems.iter().map(|p| format!("recorder: {p}")));
        let mut damage = Vec::new();
        let mut spilled = manifest.data == RowsIn::Spill;
        if !spilled
            && !has_files(&folder.join(SAMPLES_DIR), "parquet")
            && has_files(&folder.join(SPILL_DIR), SPILL_EXTENSION)
        {
            warnings.push("samples/ is missing; the rows are read from spill/".into());
            spilled = true;
        }
        let annotations = annotations(spilled);
        let (code, data) = if spilled {
            let (code, sidecars) = code_of_all(folder, &manifest, annotations)?;
            let spill = open_spill(folder, (&manifest, &sidecars), annotations, &mut damage)?;
            (code, Data::Spill(Box::new(spill)))
        } else {
            let parts = crate::input::parquet::list(&folder.join(SAMPLES_DIR), &mut damage)?;
            let seen = (seen && annotations).then(|| SeenSites::read(folder, &parts));
            let code = match seen.flatten() {
                Some(seen) => code_of_seen(folder, &manifest, seen)?,
                None => code_of_all(folder, &manifest, annotations)?.0,
            };
            (code, Data::Parts(parts))
        };
        if let (Data::Parts(parts), true) = (&data, whole) {
            let rows: u64 = parts.iter().map(|part| part.rows() as u64).sum();
            damage.extend(lacking(folder, &manifest, rows));
        }
        let waited = waited::read_waited(folder, &code);
        Ok(Trace {
            waited,
            folder: folder.to_path_buf(),
            manifest,
            code,
            warnings,
            damage,
            data,
        })
    }

    /// Number of rows in a row group of `samples/`; none if there is no such group.
    pub(crate) fn stored_rows(&self, piece: usize) -> Option<usize> {
        match &self.data {
            Data::Parts(pieces) => pieces.get(piece).map(|p| p.rows()),
            Data::Spill(_) => None,
        }
    }

    /// A column of a row group, as it is stored. An error is a sentence.
    pub(crate) fn stored_column(&self, piece: usize, name: &str) -> Result<Vec<u64>, String> {
        match &self.data {
            Data::Parts(pieces) => match pieces.get(piece) {
                Some(piece) => piece.plain(name),
                None => Ok(Vec::new()),
            },
            Data::Spill(_) => Ok(Vec::new()),
        }
    }

    /// The rows.
    pub fn source(&self, columns: ColumnSet) -> Box<dyn ChunkSource + '_> {
        match &self.data {
            Data::Parts(pieces) => Box::new(crate::input::parquet::PartSource::new(
                pieces,
                &self.code,
                &self.waited,
                columns,
            )),
            Data::Spill(spill) => Box::new(spill::SpillSource::new(spill, &self.code)),
        }
    }
}

/// Sidecars by identity.
type Sidecars = BTreeMap<String, Sidecar>;

/// Reads the names of all code.
fn code_of_all(
    folder: &Path,
    manifest: &Manifest,
    annotations: bool,
) -> Result<(CodeMap, Sidecars), TraceError> {
    let mut code = CodeMap::new();
    let mut sidecars = Sidecars::new();
    for module in &manifest.modules {
        if annotations && !sidecars.contains_key(&module.sidecar_id) {
            sidecars.insert(module.sidecar_id.clone(), read_sidecar(folder, module)?);
        }
        let sidecar = sidecars.get(&module.sidecar_id);
        code.add_module(&module.path, &module.sidecar_id, sidecar, None);
    }
    Ok((code, sidecars))
}

/// Reads the names of the functions that have samples.
fn code_of_seen(
    folder: &Path,
    manifest: &Manifest,
    seen: SeenSites,
) -> Result<CodeMap, TraceError> {
    let modules = &manifest.modules;
    let first = |id: &str| modules.iter().position(|m| m.sidecar_id == id);
    let same: Vec<usize> = (modules.iter().enumerate())
        .map(|(at, m)| {
            first(&m.sidecar_id)
                .filter(|_| !m.sidecar_id.is_empty())
                .unwrap_or(at)
        })
        .collect();
    let seen = seen.united(&same);
    let mut code = CodeMap::new();
    let numbers: Vec<usize> = (0..modules.len()).collect();
    // The sidecars of some modules at a time: one may take tens of megabytes.
    for some in numbers.chunks(rayon::current_num_threads().max(1)) {
        let read = |&at: &usize| {
            let is_needed = same[at] == at && seen.of(at).is_some();
            is_needed
                .then(|| read_sidecar(folder, &modules[at]))
                .transpose()
        };
        let sidecars: Vec<_> = some.par_iter().map(read).collect();
        for (&at, sidecar) in some.iter().zip(sidecars) {
            let (module, sidecar) = (&modules[at], sidecar?);
            let (sidecar, sites) = (sidecar.as_ref(), seen.of(at));
            code.add_module(&module.path, &module.sidecar_id, sidecar, sites);
        }
    }
    Ok(code)
}

fn open_spill(
    folder: &Path,
    (manifest, sidecars): (&Manifest, &Sidecars),
    annotations: bool,
    damage: &mut Vec<String>,
) -> Result<spill::Spill, TraceError> {
    let path = folder.join(SPILL_DIR);
    let opened = if annotations {
        spill::Spill::open(&path, manifest, sidecars, damage).map_err(|e| e.to_string())
    } else {
        Err("its rows have not been converted to samples/ yet, and that takes the sidecars: leave out --no-annotations".to_string())
    };
    opened.map_err(|cause| TraceError::Spill {
        path: path.display().to_string(),
        cause,
    })
}

/// A sentence on the rows that the manifest counts and the files lack.
fn lacking(folder: &Path, manifest: &Manifest, rows: u64) -> Option<String> {
    let all = manifest.totals.rows;
    (rows < all).then(|| {
        format!(
            "{}: {} of {all} rows are missing: a part is not there, or cannot be read; put it back, or record again",
            folder.join(SAMPLES_DIR).display(),
            all - rows
        )
    })
}

/// Name of the trace's folder inside the folder of `mgz run`.
const OF_RUN: &str = "trace";

/// True if a folder is a trace.
pub(crate) fn is_trace(folder: &Path) -> bool {
    folder.join(MANIFEST).is_file()
}

/// The folder of the trace for a path: the path itself, or the trace inside a folder of `mgz run`.
pub fn folder_of(path: PathBuf) -> PathBuf {
    let inside = path.join(OF_RUN);
    if !is_trace(&path) && is_trace(&inside) {
        return inside;
    }
    path
}

/// The user's command line of the `mgz run` that recorded a trace; empty for other traces. The
/// manifest has that of the instrumented copy.
pub(crate) fn command_of_run(trace: &Path) -> Vec<String> {
    if !trace.ends_with(OF_RUN) {
        return Vec::new();
    }
    let beside = trace.with_file_name(COMMAND_OF_RUN);
    let text = std::fs::read(beside).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// True if a folder has a file with this ending.
fn has_files(folder: &Path, ending: &str) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut files| {
        files.any(|f| f.is_ok_and(|f| f.path().extension().is_some_and(|e| e == ending)))
    })
}

/// The manifest alone, of a trace of any mode.
pub fn manifest_of(folder: &Path) -> Result<Manifest, TraceError> {
    read_manifest(folder)
}

fn read_manifest(folder: &Path) -> Result<Manifest, TraceError> {
    let shown = folder.display().to_string();
    match std::fs::metadata(folder) {
        Err(e) => {
            return Err(TraceError::NoFolder {
                path: shown,
                cause: e.to_string(),
            });
        }
        Ok(meta) if !meta.is_dir() => {
            return Err(TraceError::NoFolder {
                path: shown,
                cause: "it is a file".into(),
            });
        }
        Ok(_) => {}
    }
    let file = folder.join(MANIFEST);
    let path = file.display().to_string();
    let text = std::fs::read(&file).map_err(|e| TraceError::NoManifest {
        path: path.clone(),
        cause: e.to_string(),
    })?;
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|e| TraceError::BadManifest {
            path: path.clone(),
            cause: format!("not valid JSON: {e}"),
        })?;
    if value.get("format").and_then(|f| f.as_str()) != Some(TRACE_FORMAT) {
        return Err(TraceError::BadManifest {
            path,
            cause: format!("its format is not {TRACE_FORMAT:?}"),
        });
    }
    // The version comes first: other versions may have other types.
    match value.get("version").and_then(|v| v.as_u64()) {
        Some(v) if v == u64::from(TRACE_VERSION) => {}
        Some(v) => {
            return Err(TraceError::Version {
                path,
                found: u32::try_from(v).unwrap_or(u32::MAX),
            });
        }
        None => {
            return Err(TraceError::BadManifest {
                path,
                cause: "it has no version".into(),
            });
        }
    }
    serde_json::from_value(value).map_err(|e| TraceError::BadManifest {
        path,
        cause: e.to_string(),
    })
}

fn read_sidecar(
    folder: &Path,
    module: &mgz_annotations_schema::manifest::Module,
) -> Result<Sidecar, TraceError> {
    let relative = Path::new(&module.sidecar);
    let inside = relative
        .components()
        .all(|c| matches!(c, std::path::Component::Normal(_)));
    let path = folder.join(relative);
    let fail = |cause: String| TraceError::Sidecar {
        path: path.display().to_string(),
        cause,
    };
    if module.sidecar.is_empty() || !inside {
        return Err(TraceError::Sidecar {
            path: folder.join(MANIFEST).display().to_string(),
            cause: format!("the module {} has no sidecar inside the trace", module.path),
        });
    }
    let sidecar = Sidecar::read(&path).map_err(|e| fail(e.to_string()))?;
    if sidecar.id_hex() != module.sidecar_id {
        return Err(fail(format!(
            "sidecar of another build (identity {}, the trace was made with {})",
            sidecar.id_hex(),
            module.sidecar_id
        )));
    }
    Ok(sidecar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_mgz_has_the_command_of_its_user() {
        let folder = tempfile::tempdir().unwrap();
        let [trace, other] = ["trace", "other"].map(|name| folder.path().join(name));
        assert!(command_of_run(&trace).is_empty());
        std::fs::write(folder.path().join(COMMAND_OF_RUN), r#"["./app", "in put"]"#).unwrap();
        assert_eq!(command_of_run(&trace), ["./app", "in put"]);
        assert!(command_of_run(&other).is_empty());
    }
}
