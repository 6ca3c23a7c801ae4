//! Executed loads by code from another run of the same command: weights for the windows of this one
//! (`--weights-from`).
//!
//! A trace of `count` or `full` has the number of each load. A trace of `ring` has windows that
//! each represent the same number of records of their thread, and this number.

use crate::data::chunk::Chunk;
use crate::data::code_map::{CodeMap, Target};
use crate::input::executions;
use crate::input::{ColumnSet, Trace};
use mgz_annotations_schema::manifest::{Manifest, Module};
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_annotations_schema::{TraceMode, TraceState};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Number of replicates of samples. Their differences give the error of a sum over samples.
const REPLICATES: usize = 32;

/// Quantile of Student's distribution for 95 % with `REPLICATES` − 1 degrees of freedom.
const STUDENT: f64 = 2.0395;

/// A number of loads and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count {
    /// The number.
    pub value: f64,
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

impl Count {
    fn exact(value: f64) -> Count {
        Count {
            value,
            lo: value,
            hi: value,
        }
    }
}

/// Source of the weights, as in JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WeightsFrom {
    /// The other trace.
    pub trace: String,
    /// Its mode.
    pub mode: TraceMode,
    /// Every load was counted.
    pub exact: bool,
    /// Loads that it executed.
    pub loads: f64,
    /// Percent of these loads in code without windows in this trace.
    pub unseen_pct: f64,
}

/// Loads by code.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// Source of the weights.
    pub from: Option<WeightsFrom>,
    whole: Option<Count>,
    /// By function of this trace. `None` if the other run has not executed it.
    functions: Vec<Option<Count>>,
    /// Loads by line, in the same way.
    lines: Vec<Option<Count>>,
    loops: Vec<Option<Count>>,
    /// Loads by line piece.
    pieces: Vec<f64>,
}

/// Why another trace has no weights for this one. Each names the trace, the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum CountedError {
    /// It cannot be read.
    #[error("--weights-from: {0}")]
    Trace(#[from] crate::input::trace_error::TraceError),
    /// A trace of its mode has no numbers of loads.
    #[error(
        "--weights-from: {path}: a trace of mode {mode} has no numbers of executed loads; give one of mgz-record --count, --mode full or --mode ring of the same command"
    )]
    Mode {
        /// The trace.
        path: String,
        /// Its mode.
        mode: TraceMode,
    },
    /// Something is missing in it.
    #[error(
        "--weights-from: {path}: {why}, so that its numbers of loads are not those of the run; record it again"
    )]
    Incomplete {
        /// The trace.
        path: String,
        /// The missing part.
        why: String,
    },
    /// The other trace is of another program or build.
    #[error(
        "--weights-from: {path}: {why}; weights are taken from the same build of the same program only: instrument both from one original"
    )]
    OtherProgram {
        /// The trace.
        path: String,
        /// The difference.
        why: String,
    },
    /// It is of other arguments.
    #[error(
        "--weights-from: {path}: it was recorded with other arguments ({theirs}) than this trace ({ours}); other input executes other numbers of loads: record both with the same"
    )]
    OtherCommand {
        /// The trace.
        path: String,
        /// Its arguments.
        theirs: String,
        /// Those of this trace.
        ours: String,
    },
    /// It has rows that cannot be attributed, or none.
    #[error("--weights-from: {path}: no loads are in it; record it again")]
    Empty {
        /// The trace.
        path: String,
    },
}

/// The path of a trace's own counted run, if it has one.
pub fn of_trace(folder: &Path) -> Option<PathBuf> {
    let path = folder.join(mgz_annotations_schema::manifest::CALIBRATION_DIR);
    path.join(mgz_annotations_schema::manifest::MANIFEST)
        .exists()
        .then_some(path)
}

/// The file that a module was made from: its build id and the hash of its bytes.
type Original = (String, String);

/// All originals of each file name.
fn originals(trace: &Trace) -> Result<BTreeMap<String, BTreeSet<Original>>, CountedError> {
    let mut found: BTreeMap<String, BTreeSet<Original>> = BTreeMap::new();
    let of = |module: &Module| -> Option<(String, Original)> {
        let input = Sidecar::read(&trace.folder.join(&module.sidecar))
            .ok()?
            .header
            .input;
        let name = Path::new(&input.path).file_name()?.to_string_lossy();
        Some((name.into_owned(), (input.build_id, input.hash)))
    };
    let mut seen = BTreeSet::new();
    for module in &trace.manifest.modules {
        if !seen.insert(&module.sidecar_id) {
            continue;
        }
        if let Some((name, original)) = of(module) {
            found.entry(name).or_default().insert(original);
        }
    }
    Ok(found)
}

/// Arguments as they are shown.
fn arguments(manifest: &Manifest) -> String {
    match manifest.command.get(1..) {
        Some(rest) if !rest.is_empty() => rest.join(" "),
        _ => "none".into(),
    }
}

/// Checks that another trace is of the same command.
fn check(ours: &Trace, other: &Trace, path: &str) -> Result<(), CountedError> {
    let theirs = originals(other)?;
    for (name, of_ours) in originals(ours)? {
        let why = match theirs.get(&name) {
            None => format!("{name} was not recorded in it"),
            Some(found) if found.is_disjoint(&of_ours) => {
                format!("its {name} is another build (hash or build id differ)")
            }
            Some(_) => continue,
        };
        return Err(CountedError::OtherProgram {
            path: path.into(),
            why,
        });
    }
    if ours.manifest.command.get(1..) != other.manifest.command.get(1..) {
        return Err(CountedError::OtherCommand {
            path: path.into(),
            theirs: arguments(&other.manifest),
            ours: arguments(&ours.manifest),
        });
    }
    let incomplete = |why: String| CountedError::Incomplete {
        path: path.into(),
        why,
    };
    let manifest = &other.manifest;
    match &manifest.mode {
        TraceMode::Count | TraceMode::Full | TraceMode::Ring => {}
        mode @ (TraceMode::Burst
        | TraceMode::Watch
        | TraceMode::Samples
        | TraceMode::Snapshot
        | TraceMode::Unknown(_)) => {
            return Err(CountedError::Mode {
                path: path.into(),
                mode: mode.clone(),
            });
        }
    }
    if matches!(
        manifest.state,
        TraceState::Running | TraceState::Interrupted
    ) {
        return Err(incomplete("its recording did not end well".into()));
    }
    if manifest.mode != TraceMode::Ring && manifest.totals.loads_executed.is_none() {
        return Err(incomplete("it has lost data".into()));
    }
    Ok(())
}

/// Loads of the pieces of a trace, by replicate of samples.
type PieceLoads = HashMap<u32, [f64; REPLICATES]>;

/// Sums up the loads that each thread's rows represent.
fn rows(trace: &Trace, damage: &mut Vec<String>) -> PieceLoads {
    let sampled = trace.manifest.mode == TraceMode::Ring;
    let ratios: HashMap<(u32, u32), f64> = trace
        .manifest
        .threads
        .iter()
        .filter(|t| t.records_kept > 0)
        .map(|t| {
            let ratio = t.records_executed as f64 / t.records_kept as f64;
            ((t.process, t.thread), ratio)
        })
        .collect();
    let source = trace.source(ColumnSet::default());
    let mut sums = PieceLoads::new();
    let mut add = |chunk: &Chunk| {
        let rows = chunk.loads.rows();
        for run in &chunk.runs {
            let ratio = match ratios.get(&(run.process, run.thread)) {
                Some(&ratio) if sampled => ratio,
                _ => 1.0,
            };
            let part = run.sample as usize % REPLICATES;
            let rows = rows.slice(run.loads.clone());
            for (&group, &implied) in rows.group.iter().zip(rows.implied) {
                sums.entry(group.piece()).or_insert([0.0; REPLICATES])[part] +=
                    ratio * (1.0 + f64::from(implied));
            }
        }
    };
    for piece in 0..source.pieces() {
        for read in source.read(&[piece]) {
            match read {
                Ok(chunk) => {
                    damage.extend(chunk.damage.iter().cloned());
                    add(&chunk);
                }
                Err((sentence, _)) => damage.push(sentence),
            }
        }
    }
    sums
}

/// A sum over samples with its interval, by a jackknife over the replicates.
fn count(parts: &[f64; REPLICATES], exact: bool) -> Option<Count> {
    // (An empty sum is -0.)
    let value = parts.iter().sum::<f64>() + 0.0;
    if value <= 0.0 {
        return None;
    }
    if exact {
        return Some(Count::exact(value));
    }
    let n = REPLICATES as f64;
    let mean = value / n;
    let variance = parts.iter().map(|p| (p - mean).powi(2)).sum::<f64>() / (n - 1.0) * n;
    let half = STUDENT * variance.sqrt();
    Some(Count {
        value,
        lo: (value - half).max(0.0),
        hi: value + half,
    })
}

/// Reads the numbers of this trace's loads from another trace.
pub fn read_counted(ours: &Trace, folder: &Path) -> Result<Counted, CountedError> {
    let path = folder.display().to_string();
    let other = Trace::open(folder, true)?;
    check(ours, &other, &path)?;
    let exact = other.manifest.mode != TraceMode::Ring;
    let mut damage = other.damage.clone();
    let sums = if other.manifest.mode == TraceMode::Count {
        let counts =
            executions::read_executions(&other).map_err(|why| CountedError::Incomplete {
                path: path.clone(),
                why,
            })?;
        let whole = |loads: f64| {
            let mut parts = [0.0; REPLICATES];
            parts[0] = loads;
            parts
        };
        counts.into_iter().map(|(p, n)| (p, whole(n))).collect()
    } else {
        rows(&other, &mut damage)
    };
    if let Some(damage) = damage.into_iter().next() {
        return Err(CountedError::Incomplete { path, why: damage });
    }
    if sums.is_empty() {
        return Err(CountedError::Empty { path });
    }
    // The pieces of this trace keep their indices in a map to which the other trace's code is
    // added.
    let code = &ours.code;
    let mut names = CodeMap::from_parts(
        code.functions.clone(),
        code.lines.clone(),
        code.loops.clone(),
        code.pieces.clone(),
    );
    let piece_of = names.adopt(&other.code);
    let mut pieces = vec![[0.0; REPLICATES]; names.pieces.len()];
    for (piece, parts) in sums {
        let Some(&here) = piece_of.get(piece as usize) else {
            continue;
        };
        add(&mut pieces[here as usize], &parts);
    }
    let table = |target: Target| -> Vec<Option<Count>> {
        let mut rows = vec![[0.0; REPLICATES]; names.rows(target)];
        for (piece, parts) in pieces.iter().enumerate() {
            for &row in names.targets_of_piece(target, piece as u32) {
                add(&mut rows[row as usize], parts);
            }
        }
        rows.iter().map(|parts| count(parts, exact)).collect()
    };
    let whole = table(Target::Whole).first().copied().flatten();
    Ok(Counted {
        from: Some(WeightsFrom {
            trace: path,
            mode: other.manifest.mode.clone(),
            exact,
            loads: whole.map_or(0.0, |w| w.value),
            unseen_pct: 0.0,
        }),
        whole,
        functions: table(Target::Function),
        lines: table(Target::Line),
        loops: table(Target::Loop),
        pieces: pieces
            .iter()
            .map(|parts| parts.iter().sum::<f64>() + 0.0)
            .collect(),
    })
}

fn add(into: &mut [f64; REPLICATES], from: &[f64; REPLICATES]) {
    into.iter_mut().zip(from).for_each(|(a, b)| *a += b);
}

impl Counted {
    /// The loads of the whole run.
    pub fn whole(&self) -> Option<Count> {
        self.whole
    }

    /// The loads of the rows of a table; `None` for rows without executed loads.
    pub fn rows(&self, target: Target) -> Vec<Option<Count>> {
        match target {
            Target::Whole => vec![self.whole],
            Target::Function => self.functions.clone(),
            Target::Line => self.lines.clone(),
            Target::Loop => self.loops.clone(),
        }
    }

    /// The loads of a line piece.
    pub fn piece(&self, piece: usize) -> f64 {
        self.pieces.get(piece).copied().unwrap_or(0.0)
    }

    /// The loads of functions, by number.
    pub fn functions(&self) -> impl Iterator<Item = f64> + '_ {
        self.functions.iter().map(|f| f.map_or(0.0, |f| f.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_samples_have_intervals_and_counts_have_none() {
        let mut parts = [10.0; REPLICATES];
        assert_eq!(count(&parts, true), Some(Count::exact(320.0)));
        let even = count(&parts, false).unwrap();
        assert!(even.lo == 320.0 && even.hi == 320.0);
        parts[0] = 42.0;
        let uneven = count(&parts, false).unwrap();
        assert!(uneven.lo < 300.0 && uneven.hi > 400.0, "{uneven:?}");
        assert_eq!(count(&[0.0; REPLICATES], true), None);
    }
}
