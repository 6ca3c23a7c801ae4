//! Address filters: PT writes only while the processor is in given ranges of a file's code.
//!
//! A processor has two to four filters, and functions are scattered. So neighbors share a range
//! that includes as little code between them as possible. Loads of functions that were not
//! requested are then recorded too: a filter saves space but does not change the meaning of rows.

use mgz_annotations_schema::sidecar::{NONE, Sidecar};
use mgz_collector::program::modules::Instrumented;
use mgz_elf::demangle::readable;
use mgz_elf::function_names::unnamed;
use object::{Object, ObjectSegment};
use std::collections::BTreeMap;
use std::path::Path;

/// A range of a file, bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// The file.
    pub file: String,
    /// First offset.
    pub start: u64,
    /// Offset behind the last.
    pub end: u64,
}

/// Why there are no filters.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The pattern is wrong.
    #[error("--functions: {0}")]
    Pattern(#[from] regex::Error),
    /// No function matches.
    #[error(
        "--functions {0}: no instrumented function has such a name; `mgz-record --hot` shows names"
    )]
    None(String),
    /// The processor has no filters.
    #[error(
        "--functions: this processor (or its kernel) has no address filters; choose functions with `mgz-instrument --functions` instead"
    )]
    Unsupported,
    /// The functions are in more files than there are filters.
    #[error(
        "--functions: the functions lie in {files} files, but there are only {filters} address filters; choose functions with `mgz-instrument --functions` instead"
    )]
    TooMany {
        /// Number of files.
        files: usize,
        /// Number of filters.
        filters: usize,
    },
    /// A file cannot be read.
    #[error("{path}: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// Reason.
        why: String,
    },
    /// The path contains white space or a comma, which ends a filter in the kernel's syntax.
    #[error(
        "{0}: the kernel does not take address filters for files with white space or commas in their path"
    )]
    Path(String),
}

/// The filter for the clones of functions whose names match the pattern, and the number of other
/// code bytes that it covers.
pub fn for_functions(
    pattern: &str,
    modules: &[Instrumented],
    filters: u32,
) -> Result<(String, u64), FilterError> {
    let wanted = regex::Regex::new(pattern)?;
    if filters == 0 {
        return Err(FilterError::Unsupported);
    }
    let mut ranges = Vec::new();
    for module in modules {
        ranges.extend(clones(&wanted, module)?);
    }
    if ranges.is_empty() {
        return Err(FilterError::None(pattern.into()));
    }
    let asked: u64 = ranges.iter().map(|r| r.end - r.start).sum();
    let merged = merge(ranges, filters as usize)?;
    let covered: u64 = merged.iter().map(|r| r.end - r.start).sum();
    Ok((text(&merged)?, covered.saturating_sub(asked)))
}

fn clones(wanted: &regex::Regex, module: &Instrumented) -> Result<Vec<Range>, FilterError> {
    let unreadable = |path: &Path, why: String| FilterError::Unreadable {
        path: path.display().to_string(),
        why,
    };
    let sidecar =
        Sidecar::read(&module.sidecar).map_err(|e| unreadable(&module.sidecar, e.to_string()))?;
    let file =
        std::fs::canonicalize(&module.path).map_err(|e| unreadable(&module.path, e.to_string()))?;
    let bytes = std::fs::read(&file).map_err(|e| unreadable(&file, e.to_string()))?;
    let parsed = object::File::parse(&bytes[..]).map_err(|e| unreadable(&file, e.to_string()))?;
    let offset = |address: u64| {
        parsed.segments().find_map(|segment| {
            let (at, size) = segment.file_range();
            let inside = address
                .checked_sub(segment.address())
                .filter(|&n| n < size)?;
            Some(at + inside)
        })
    };
    let mut ranges = Vec::new();
    for function in &sidecar.functions {
        if function.clone_start >= function.clone_end {
            continue;
        }
        let name = if function.name == NONE {
            ""
        } else {
            sidecar.string(function.name)
        };
        let shown = if name.is_empty() {
            unnamed(function.start)
        } else {
            readable(name)
        };
        if !wanted.is_match(&shown) && (name.is_empty() || !wanted.is_match(name)) {
            continue;
        }
        if let Some(start) = offset(function.clone_start) {
            ranges.push(Range {
                file: file.display().to_string(),
                start,
                end: start + (function.clone_end - function.clone_start),
            });
        }
    }
    Ok(ranges)
}

/// At most `most` ranges that cover all given ones and as little else as possible: the largest gaps
/// stay open.
pub fn merge(mut ranges: Vec<Range>, most: usize) -> Result<Vec<Range>, FilterError> {
    ranges.sort();
    let files: BTreeMap<&str, ()> = ranges.iter().map(|r| (r.file.as_str(), ())).collect();
    if files.len() > most {
        return Err(FilterError::TooMany {
            files: files.len(),
            filters: most,
        });
    }
    let may_split = most - files.len();
    // Gaps between neighbours in one file, the largest first.
    let mut gaps: Vec<(u64, usize)> = Vec::new();
    let mut end = 0;
    for (n, range) in ranges.iter().enumerate() {
        if n > 0 && ranges[n - 1].file == range.file {
            if range.start > end {
                gaps.push((range.start - end, n));
            }
            end = end.max(range.end);
        } else {
            end = range.end;
        }
    }
    gaps.sort_by(|a, b| b.cmp(a));
    let open: Vec<usize> = gaps.iter().take(may_split).map(|&(_, n)| n).collect();
    let mut out: Vec<Range> = Vec::new();
    for (n, range) in ranges.into_iter().enumerate() {
        match out
            .last_mut()
            .filter(|last| last.file == range.file && !open.contains(&n))
        {
            Some(last) => last.end = last.end.max(range.end),
            None => out.push(range),
        }
    }
    Ok(out)
}

/// The ranges in the kernel's syntax: `filter START/SIZE@FILE`, separated by white space.
pub fn text(ranges: &[Range]) -> Result<String, FilterError> {
    if let Some(bad) = ranges
        .iter()
        .find(|r| r.file.contains(|c: char| c.is_whitespace() || c == ','))
    {
        return Err(FilterError::Path(bad.file.clone()));
    }
    let list: Vec<String> = ranges
        .iter()
        .map(|r| format!("filter {:#x}/{:#x}@{}", r.start, r.end - r.start, r.file))
        .collect();
    Ok(list.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(file: &str, start: u64, end: u64) -> Range {
        Range {
            file: file.into(),
            start,
            end,
        }
    }

    #[test]
    fn the_largest_gaps_stay_open() {
        let list = vec![
            range("a", 100, 200),
            range("a", 0, 50),
            range("a", 1000, 1100),
            range("a", 1090, 1200),
            range("a", 300, 310),
        ];
        assert_eq!(merge(list.clone(), 1).unwrap(), [range("a", 0, 1200)]);
        assert_eq!(
            merge(list.clone(), 2).unwrap(),
            [range("a", 0, 310), range("a", 1000, 1200)]
        );
        assert_eq!(
            merge(list.clone(), 3).unwrap(),
            [
                range("a", 0, 200),
                range("a", 300, 310),
                range("a", 1000, 1200)
            ]
        );
        assert_eq!(
            merge(list, 9).unwrap().len(),
            4,
            "what touches is one range"
        );
        // A short range inside a long one does not hide the long one's end.
        let nested = vec![
            range("a", 0, 1000),
            range("a", 10, 20),
            range("a", 500, 600),
            range("a", 2000, 2010),
        ];
        assert_eq!(
            merge(nested, 2).unwrap(),
            [range("a", 0, 1000), range("a", 2000, 2010)]
        );
    }

    #[test]
    fn every_file_has_a_range_of_its_own() {
        let list = vec![
            range("b", 10, 20),
            range("a", 10, 20),
            range("b", 90, 95),
            range("a", 30, 35),
        ];
        assert_eq!(
            merge(list.clone(), 2).unwrap(),
            [range("a", 10, 35), range("b", 10, 95)]
        );
        assert_eq!(merge(list.clone(), 3).unwrap().len(), 3);
        assert!(matches!(
            merge(list, 1),
            Err(FilterError::TooMany {
                files: 2,
                filters: 1
            })
        ));
    }

    #[test]
    fn the_kernels_words() {
        assert_eq!(
            text(&[range("/a", 0x1000, 0x1200), range("/b", 16, 32)]).unwrap(),
            "filter 0x1000/0x200@/a filter 0x10/0x10@/b"
        );
        assert!(matches!(
            text(&[range("/a b", 0, 1)]),
            Err(FilterError::Path(_))
        ));
        assert!(for_functions("(", &[], 2).is_err());
        assert!(matches!(
            for_functions("x", &[], 0),
            Err(FilterError::Unsupported)
        ));
        assert!(matches!(
            for_functions("x", &[], 2),
            Err(FilterError::None(_))
        ));
    }
}
