//! Reader of call paths of samples: `call_paths.parquet` and `window_paths.parquet`.

use crate::data::call_paths::{Call, CallPaths};
use crate::data::frame::{self, Frame};
use crate::input::quietly;
use mgz_annotations_schema::manifest::{CALL_PATHS, WINDOW_PATHS};
use std::path::Path;

/// Reads the paths of a trace. `Ok(None)` if it has none; an error is a sentence for the user.
pub fn read_call_paths(folder: &Path) -> Result<Option<CallPaths>, String> {
    let (Some(calls), Some(samples)) = (table(folder, CALL_PATHS)?, table(folder, WINDOW_PATHS)?)
    else {
        return Ok(None);
    };
    let damaged = |name: &str, cause: String| {
        format!(
            "{}: damaged ({cause}); call paths are unknown; record again",
            folder.join(name).display()
        )
    };
    let calls = calls_of(&calls).map_err(|e| damaged(CALL_PATHS, e))?;
    let of_sample = samples_of(&samples, calls.len()).map_err(|e| damaged(WINDOW_PATHS, e))?;
    Ok(Some(CallPaths { calls, of_sample }))
}

fn table(folder: &Path, name: &str) -> Result<Option<Frame>, String> {
    let path = folder.join(name);
    let sentence = |cause: String| format!("{}: {cause}; call paths are unknown", path.display());
    match std::fs::File::open(&path) {
        Ok(file) => quietly(|| frame::read_parquet(file))
            .and_then(|r| r)
            .map(Some)
            .map_err(|e| sentence(format!("damaged ({e})"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(sentence(error.to_string())),
    }
}

fn number(value: u64) -> Result<u32, String> {
    u32::try_from(value).map_err(|_| "a number is too large".to_string())
}

fn calls_of(table: &Frame) -> Result<Vec<Call>, String> {
    let (path, parent, line) = (
        frame::numbers(table, "path")?,
        frame::numbers(table, "parent")?,
        frame::numbers(table, "call_line")?,
    );
    let inlined = frame::flags(table, "inlined")?;
    // Traces of earlier versions lack it.
    let python = frame::flags(table, "python").unwrap_or_default();
    let columns = ["function", "module", "file", "call_file"].map(|name| frame::texts(table, name));
    let [function, module, file, call_file] = columns;
    let (function, module, file, call_file) = (function?, module?, file?, call_file?);
    let text = |column: &[Option<&str>], row: usize| column[row].unwrap_or_default().to_string();
    let mut calls = vec![Call::default()];
    for row in 0..table.height() {
        // Callers come first, so that every path ends.
        if path[row] != row as u64 + 1 || parent[row] > row as u64 {
            return Err(format!("call {} has the caller {}", path[row], parent[row]));
        }
        calls.push(Call {
            parent: number(parent[row])?,
            function: text(&function, row),
            module: text(&module, row),
            file: text(&file, row),
            call_file: text(&call_file, row),
            call_line: number(line[row])?,
            inlined: inlined[row],
            python: python.get(row).copied().unwrap_or(false),
        });
    }
    Ok(calls)
}

fn samples_of(table: &Frame, calls: usize) -> Result<Vec<u32>, String> {
    let (sample, path) = (
        frame::numbers(table, "sample")?,
        frame::numbers(table, "path")?,
    );
    let mut of_sample = Vec::new();
    for (&sample, &path) in sample.iter().zip(&path) {
        // Samples are numbered consecutively: a number far beyond their count is damage.
        if sample > 4 * table.height() as u64 + 1024 || path >= calls as u64 {
            return Err(format!("sample {sample} with the path {path}"));
        }
        let at = sample as usize;
        if of_sample.len() <= at {
            of_sample.resize(at + 1, 0);
        }
        of_sample[at] = number(path)?;
    }
    Ok(of_sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_without_paths_has_none_and_a_damaged_file_is_told() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read_call_paths(dir.path()).unwrap().is_none());
        std::fs::write(dir.path().join(CALL_PATHS), b"PAR1 nonsense").unwrap();
        let told = read_call_paths(dir.path()).unwrap_err();
        assert!(
            told.contains("call_paths.parquet") && told.contains("unknown"),
            "{told}"
        );
    }
}
