//! Functions of other files that read memory for an instrumented file: what `memcpy` and similar
//! functions read is not recorded.

use crate::program::note::instrumented_note;
use mgz_abi::module_note::FEATURE_COPIES;
use mgz_annotations_schema::coverage::LoadedFile;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::path::Path;

/// True if a function of the C library reads memory that its caller gives it, and does little else.
fn reads(name: &str) -> bool {
    const OTHERS_WITH_MEM: [&str; 10] = [
        "memset",
        "memfd_create",
        "memalign",
        "memfrob",
        "wmemset",
        "strerror",
        "strerror_r",
        "strerror_l",
        "strsignal",
        "strfry",
    ];
    const STARTS: [&str; 8] = [
        "mem", "wmem", "str", "stp", "wcs", "rawmem", "bcopy", "bcmp",
    ];
    let plain = name.trim_start_matches('_');
    let plain = plain.strip_suffix("_chk").unwrap_or(plain);
    let plain = plain.strip_prefix("isoc23_").unwrap_or(plain);
    (STARTS.iter().any(|s| plain.starts_with(s)) || matches!(plain, "qsort" | "bsearch"))
        && !OTHERS_WITH_MEM.contains(&plain)
        && !plain.starts_with("strf")
}

fn map(path: &Path) -> Option<memmap2::Mmap> {
    let file = std::fs::File::open(path).ok()?;
    // SAFETY: private and read-only; a concurrent truncation of the file harms every program that
    // maps it.
    unsafe { memmap2::Mmap::map(&file).ok() }
}

/// Dynamic symbols of a file that name such functions: its imports, or its definitions.
fn symbols(path: &Path, defined: bool) -> BTreeSet<String> {
    let Some(data) = map(path) else {
        return BTreeSet::new();
    };
    let Ok(file) = ElfFile64::<Endianness>::parse(&*data) else {
        return BTreeSet::new();
    };
    file.dynamic_symbols()
        // (`is_definition` leaves out functions whose variant the processor decides, as strlen.)
        .filter(|s| s.is_undefined() != defined)
        .filter_map(|s| s.name().ok())
        .filter(|name| reads(name))
        .map(str::to_owned)
        .collect()
}

/// Imported functions of a file whose calls are not recorded in it.
fn unrecorded(path: &Path) -> BTreeSet<String> {
    let mut wanted = symbols(path, false);
    let note = instrumented_note(path).ok().flatten();
    if note.is_some_and(|note| note.features & FEATURE_COPIES != 0) {
        wanted.retain(|name| !copies(name));
    }
    wanted
}

/// True for functions whose calls `mgz-instrument --copies` records.
fn copies(name: &str) -> bool {
    let plain = name.trim_start_matches('_');
    let plain = plain.strip_suffix("_chk").unwrap_or(plain);
    matches!(plain, "memcpy" | "memmove" | "mempcpy")
}

/// Adds these functions to the files that define them.
pub(crate) fn enter_functions(files: &mut [LoadedFile]) {
    let mut wanted: BTreeSet<String> = files
        .iter()
        .filter(|f| f.instrumented)
        .flat_map(|f| unrecorded(Path::new(&f.path)))
        .collect();
    // A function that an instrumented file defines is recorded there.
    for file in files.iter().filter(|f| f.instrumented) {
        for name in symbols(Path::new(&file.path), true) {
            wanted.remove(&name);
        }
    }
    for file in files.iter_mut().filter(|f| !f.instrumented) {
        if wanted.is_empty() {
            return;
        }
        let defined = symbols(Path::new(&file.path), true);
        file.reads_for = wanted.intersection(&defined).cloned().collect();
        wanted.retain(|name| !defined.contains(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_read_are_told_from_others() {
        for name in [
            "memcpy",
            "__memcpy_chk",
            "strlen",
            "stpcpy",
            "__isoc23_strtol",
            "wcscmp",
            "qsort",
            "bcmp",
        ] {
            assert!(reads(name), "{name}");
        }
        for name in [
            "memset",
            "__memset_chk",
            "malloc",
            "strerror",
            "memfd_create",
            "strftime",
            "printf",
        ] {
            assert!(!reads(name), "{name}");
        }
    }

    #[test]
    fn they_are_found_in_the_c_library() {
        let own = std::env::current_exe().unwrap().display().to_string();
        let maps = mgz_perf::proc_maps::read_process_maps(std::process::id()).unwrap();
        let libc = mgz_perf::proc_maps::lines(&maps)
            .map(|l| l.name)
            .find(|p| p.contains("libc.so"))
            .unwrap();
        let file = |path: &str, instrumented| LoadedFile {
            path: path.into(),
            instrumented,
            ..LoadedFile::default()
        };
        let mut files = [file(&own, true), file(libc, false)];
        enter_functions(&mut files);
        assert!(
            files[1].reads_for.contains(&"memcpy".to_owned()),
            "{files:?}"
        );
        // The library itself is recorded.
        let mut both = [file(&own, true), file(libc, true)];
        enter_functions(&mut both);
        assert!(both.iter().all(|f| f.reads_for.is_empty()));
    }
}
