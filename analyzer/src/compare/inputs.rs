//! Inputs of a comparison: traces, folders of `mgz run`, partial results, and folders of these.

use crate::compare::entries::{Cell, Entry, EntryKind, Metric, RunEntries, entries};
use crate::compare::original::Original;
use crate::data::code_map::Target;
use crate::engine::partial::Partial;
use crate::input::{
    ColumnSet, Trace, command_of_run, executions, folder_of, is_trace, manifest_of,
};
use crate::report::build::{examine, tables_of};
use crate::report::counted::find_counts;
use crate::report::questions::Questions;
use anyhow::{Context, bail};
use mgz_annotations_schema::TraceMode;
use mgz_annotations_schema::manifest::Module;
use mgz_annotations_schema::sidecar::Sidecar;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The traces and partial results that a path stands for.
pub fn expand(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if is_program(path) {
        let shown = path.display();
        match recording_in(Path::new(""), path) {
            Some(recording) => bail!(
                "{shown}: is a program; compare its recording, {}",
                recording.display()
            ),
            None => bail!(
                "{shown}: is a program; record it first: mgz run -o new.mgz -- {shown}, and compare new.mgz"
            ),
        }
    }
    let trace = folder_of(path.to_path_buf());
    if is_trace(&trace) || trace.is_file() {
        return Ok(vec![trace]);
    }
    let entries = std::fs::read_dir(path).with_context(|| {
        format!(
            "{}: cannot be read; give a trace, a partial result or a folder of them",
            path.display()
        )
    })?;
    let mut inside: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    inside.sort();
    let mut all = Vec::new();
    for entry in inside {
        let trace = folder_of(entry.clone());
        if is_trace(&trace) {
            all.push(trace);
        } else if entry.is_file() && Partial::is_one(&entry) {
            all.push(entry);
        }
    }
    if all.is_empty() {
        bail!(
            "{}: no trace and no partial result is in it; give a folder that mgz-record or mgz run has made, a file of mgz-analyze --partial, or a folder of them",
            path.display()
        );
    }
    Ok(all)
}

/// The folder that `mgz run` has made of a program, if it was called in `folder`.
fn recording_in(folder: &Path, program: &Path) -> Option<PathBuf> {
    let name = program.file_name()?.to_string_lossy();
    Some(folder.join(format!("{name}.mgz"))).filter(|recording| recording.is_dir())
}

/// True if a file is a program: an ELF file or a script.
fn is_program(path: &Path) -> bool {
    let begins = |with: &[u8]| {
        let mut bytes = [0; 4];
        let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut bytes));
        read.is_ok_and(|n| bytes[..n].starts_with(with))
    };
    path.is_file() && (begins(b"\x7fELF") || begins(b"#!"))
}

/// Reads a trace or partial result.
pub fn read_compared(
    path: &Path,
    questions: &Questions,
    progress: &dyn Fn(u64) -> indicatif::ProgressBar,
) -> anyhow::Result<RunEntries> {
    let shown = path.display().to_string();
    if path.is_file() {
        let partial = Partial::read(path)?;
        let manifest = partial.manifest.clone();
        let analysis = tables_of(partial, questions.estimator);
        return Ok(entries(&shown, &analysis, &manifest));
    }
    let mode = manifest_of(path)?.mode;
    if mode == TraceMode::Watch {
        bail!(
            "{shown}: a trace of mgz-record --mode watch has use\u{2013}reuse pairs only, which are not compared; record with another --mode"
        );
    }
    let trace = Trace::open(path, true)?;
    if mode == TraceMode::Count {
        return counted(&shown, &trace);
    }
    let mut questions = questions.clone();
    questions.counted = find_counts(&trace, None).map_err(anyhow::Error::msg)?;
    let source = trace.source(ColumnSet::default());
    let bar = progress((0..source.pieces()).map(|p| source.piece_rows(p)).sum());
    drop(source);
    let found = examine(&trace, &questions, &|rows| bar.inc(rows));
    bar.finish_and_clear();
    let (analysis, _) = found?;
    let mut run = entries(&shown, &analysis, &trace.manifest);
    if !questions.asked_for_misses && !run.exact {
        run.leave_out_misses();
    }
    run.originals = originals(&trace);
    run.command = command_of_run(path);
    Ok(run)
}

/// Files that the modules of a trace were recorded from. A sidecar that cannot be read has been
/// reported by then.
fn originals(trace: &Trace) -> Vec<Original> {
    let original = |module: &Module| {
        let read = Sidecar::read(&trace.folder.join(&module.sidecar)).ok()?;
        let input = read.header.input;
        Some(Original {
            path: input.path,
            build_id: input.build_id,
            hash: input.hash,
        })
    };
    trace.manifest.modules.iter().filter_map(original).collect()
}

/// Loads by code, from a trace that counted them.
fn counted(path: &str, trace: &Trace) -> anyhow::Result<RunEntries> {
    let counts = executions::read_executions(trace).map_err(|e| {
        anyhow::anyhow!("{e}, so that the trace cannot be compared; record it again")
    })?;
    let all: f64 = counts.values().sum();
    let code = &trace.code;
    let with = |mut entry: Entry, loads: f64| {
        entry.weight = loads * 100.0 / all.max(1.0);
        entry.cells.insert(Metric::Loads, Cell::exact(loads));
        entry.cells.insert(Metric::Share, Cell::exact(entry.weight));
        entry
    };
    let table = |target: Target, entry: &dyn Fn(usize) -> Entry| -> Vec<Entry> {
        let mut rows: HashMap<u32, f64> = HashMap::new();
        for (&piece, loads) in &counts {
            for &row in code.targets_of_piece(target, piece) {
                *rows.entry(row).or_default() += loads;
            }
        }
        let mut rows: Vec<(u32, f64)> = rows.into_iter().collect();
        rows.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        rows.into_iter()
            .map(|(row, loads)| with(entry(row as usize), loads))
            .collect()
    };
    let functions = table(Target::Function, &|row| Entry {
        name: code.functions[row].function.clone(),
        module: code.functions[row].module.clone(),
        ..Entry::default()
    });
    let lines = table(Target::Line, &|row| Entry {
        name: code.lines[row].function.clone(),
        module: code.lines[row].module.clone(),
        file: code.lines[row].file.clone(),
        line: code.lines[row].line,
        ..Entry::default()
    });
    let mut run = with(Entry::default(), all);
    run.cells.remove(&Metric::Share);
    Ok(RunEntries {
        path: path.into(),
        originals: originals(trace),
        exact: trace.manifest.totals.loads_executed.is_some(),
        arguments: trace.manifest.command.iter().skip(1).cloned().collect(),
        tables: [
            (EntryKind::Run, vec![run]),
            (EntryKind::Function, functions),
            (EntryKind::Line, lines),
        ]
        .into(),
        warnings: trace.warnings.clone(),
        ..RunEntries::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_to_be_recorded_first() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("run.sh");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        for program in [std::env::current_exe().unwrap(), script] {
            let error = expand(&program).unwrap_err().to_string();
            assert!(error.contains("mgz run -o new.mgz -- /"), "{error}");
        }
        let recording = folder.path().join("app.mgz");
        std::fs::create_dir(&recording).unwrap();
        let of = |program: &str| recording_in(folder.path(), Path::new(program));
        assert_eq!((of("bin/app"), of("other")), (Some(recording), None));
        let partial = folder.path().join("part");
        std::fs::write(&partial, "x").unwrap();
        assert_eq!(expand(&partial).unwrap(), [partial]);
    }
}
