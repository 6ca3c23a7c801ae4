//! Checks of the program before it runs: the file, its libraries, and obstacles to recording them.
//!
//! Everything that would make a recording empty or wrong is an error here, with a remedy, before
//! any folder is made and before the program has run. Libraries are found as the dynamic loader
//! finds them ([`mgz_elf::library_search`]). A library that is not found here is no error, since
//! the loader may still find it. The runtime checks libraries that the program opens itself when
//! that happens.

use crate::objects::heap::hooks::Hook;
use crate::program::linked_files::closure;
use crate::program::note::instrumented_note;
use crate::program::path_search::resolve;
use crate::program::refusal::Refusal;
use mgz_abi::module_note::{
    ABI_VERSION, FEATURE_OWN_ALLOCATOR, FLAVOUR_PT, FLAVOUR_SOFT, ModuleNote, Prelude,
};
use mgz_abi::shared_memory::is_sanitizer;
use mgz_annotations_schema::sidecar::Sidecar;
use mgz_elf::dynamic::Dynamic;
use mgz_elf::library_search::{Requester, Search};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// An instrumented file that the program needs.
#[derive(Clone, Debug)]
pub struct Instrumented {
    /// The file.
    pub path: PathBuf,
    /// Its note.
    pub note: ModuleNote,
    /// Its sidecar.
    pub sidecar: PathBuf,
}

/// True if a program has no dynamic loader.
pub fn is_static(program: &Path) -> bool {
    Dynamic::read(program).is_some_and(|d| d.interpreter.is_none())
}

/// Known facts about a program before it runs.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Instrumented files that it is linked to (itself included), or that words in its arguments
    /// and scripts name.
    pub instrumented: Vec<Instrumented>,
    /// True if the program itself is not recorded, but may start recorded ones.
    pub starts_others: bool,
    /// Other instrumented files that words in its arguments name. The program may start or copy
    /// them.
    pub beside: Vec<Instrumented>,
}

/// Checks the program and the libraries that it is linked to. An instrumented file that its
/// flavour's backend cannot record is an error. A program without instrumentation is accepted if it
/// may start an instrumented one or load an instrumented library: scripts, shells, `env`, `make`,
/// `mpirun`, interpreters.
pub fn check_program(program: &Path, arguments: &[OsString]) -> Result<Checked, Refusal> {
    let shown = program.display().to_string();
    let no = |text: String| Err(Refusal::CannotRecord(text));
    let mut start = [0u8; 20];
    let read =
        std::fs::File::open(program).and_then(|mut f| std::io::Read::read(&mut f, &mut start));
    let length = read.map_err(|e| Refusal::CannotExecute {
        path: shown.clone(),
        why: e.to_string(),
    })?;
    let script = start[..length].starts_with(b"#!");
    if !script && !start.starts_with(b"\x7fELF") {
        return Err(Refusal::CannotExecute {
            path: shown,
            why: "it is not an ELF program".into(),
        });
    }
    // Class 64, x86-64.
    if !script && (start[4] != 2 || start[18..20] != [62, 0]) {
        return no(format!(
            "{shown}: it is not a 64-bit x86-64 program, so that neither it nor what it starts can be recorded; record the 64-bit program that it starts directly"
        ));
    }
    let mut checked = Checked::default();
    if !script {
        checked.instrumented = instrumented_in(&closure(program))?;
    }
    if checked.instrumented.is_empty() {
        checked.starts_others = true;
        for path in crate::program::launch::named(program, arguments) {
            let found = instrumented_in(&closure(&path))?;
            if !found.is_empty() {
                privileged(&path)?;
            }
            checked.instrumented.extend(found);
        }
        let list = &mut checked.instrumented;
        list.sort_by(|a, b| a.path.cmp(&b.path));
        list.dedup_by(|a, b| a.path == b.path);
    }
    if !checked.starts_others {
        // Files among these that cannot be recorded are reported if they run.
        let named = crate::program::launch::named(program, arguments);
        let noted = named
            .iter()
            .filter_map(|path| recordable(path, instrumented_note(path).ok()??).ok());
        checked.beside = noted.collect();
    }
    if checked.instrumented.is_empty()
        && !script
        && !crate::program::launch::can_start_others(program)
    {
        return no(format!(
            "{shown}: neither it, a library that it is linked to, nor a program among its arguments is instrumented, so there is nothing to record; {}",
            instrument_it(program)
        ));
    }
    privileged(program)?;
    overlaps(&checked.instrumented)?;
    Ok(checked)
}

/// True if a word names a program with instrumentation, in itself or in a library that it is linked
/// to.
pub fn is_recorded(word: &OsStr) -> bool {
    resolve(word, std::env::var_os("PATH").as_deref()).is_ok_and(|program| {
        closure(&program)
            .iter()
            .any(|path| instrumented_note(path).is_ok_and(|note| note.is_some()))
    })
}

/// Remedy for a program without instrumentation.
pub fn instrument_it(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    format!(
        "run `mgz-instrument -o {name}.inst {}` and record ./{name}.inst",
        program.display()
    )
}

/// Libraries of the program that must be loaded before the runtime: those of its note. In a program
/// that is not instrumented itself: all up to the last sanitizer runtime, which must be first.
pub fn before_runtime(program: &Path, instrumented: &[Instrumented]) -> Vec<String> {
    let lossy = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    if let Some(own) = instrumented.iter().find(|m| m.path == program) {
        let list = match own.note.before {
            0 => None,
            at => mgz_elf::dynamic::string_at(program, at),
        };
        return list
            .map(|list| list.split(|&b| b == b':').map(lossy).collect())
            .unwrap_or_default();
    }
    let executed = crate::program::launch::executed_file(program);
    let mut needed = Dynamic::read(&executed).map_or_else(Vec::new, |d| d.needed);
    let last = needed.iter().rposition(|name| is_sanitizer(name));
    needed.truncate(last.map_or(0, |last| last + 1));
    needed.iter().map(|name| lossy(name)).collect()
}

/// Functions of the allocator that the runtime replaces for `--heap`.
const ALLOCATOR: [&str; 10] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
];

/// Position of the runtime for `--heap` in the list of preloaded libraries: before the first one
/// that has an allocator. `before` holds libraries of the program that come before the runtime.
/// Those from the first one with an allocator on are removed from it.
pub fn place_for_heap(program: &Path, hooks: &[Hook], before: &mut Vec<String>) -> usize {
    let list = crate::target::spawn::preloaded().unwrap_or_default();
    let search = Search::from_environment();
    let program = Requester::program(program);
    let allocates = |name: &[u8]| {
        let path = program.as_ref().and_then(|by| search.find(name, by));
        path.is_some_and(|path| {
            mgz_elf::dynamic::defines(&path, |name| {
                ALLOCATOR.contains(&name) || hooks.iter().any(|h| h.name == name)
            })
        })
    };
    let mut start = 0;
    for part in list.split(|b| b": ".contains(b)) {
        if allocates(part) {
            before.clear();
            return start;
        }
        start += part.len() + 1;
    }
    let first = before.iter().position(|name| allocates(name.as_bytes()));
    before.truncate(first.unwrap_or(before.len()));
    list.len()
}

/// The origin of a sanitizer's allocator in the program, if there is one.
pub fn own_allocator(program: &Path, instrumented: &[Instrumented]) -> Option<String> {
    let noted = instrumented
        .iter()
        .find(|m| m.note.features & FEATURE_OWN_ALLOCATOR != 0);
    let preloaded = || {
        let list = std::env::var_os("LD_PRELOAD")?;
        let mut names = list.as_bytes().split(|b| b": ".contains(b));
        let name = names.find(|name| is_sanitizer(name))?;
        Some(String::from_utf8_lossy(name).into_owned())
    };
    let needs = || {
        let needed = Dynamic::read(program)?.needed;
        needed
            .iter()
            .any(|name| is_sanitizer(name))
            .then(|| program.display().to_string())
    };
    noted
        .map(|m| m.path.display().to_string())
        .or_else(preloaded)
        .or_else(needs)
}

fn instrumented_in(files: &[PathBuf]) -> Result<Vec<Instrumented>, Refusal> {
    let noted = files
        .iter()
        .filter_map(|path| Some((path, instrumented_note(path).ok()??)));
    noted.map(|(path, note)| recordable(path, note)).collect()
}

/// An instrumented file with its sidecar, if it can be recorded.
pub fn recordable(path: &Path, note: ModuleNote) -> Result<Instrumented, Refusal> {
    let shown = path.display();
    let no = |text: String| Err(Refusal::CannotRecord(text));
    if note.version != ABI_VERSION {
        return no(format!(
            "{shown}: instrumented by another version of mgz (interface {}, this one has {ABI_VERSION}); run `mgz-instrument` on the original again",
            note.version
        ));
    }
    if note.flavour != FLAVOUR_SOFT && note.flavour != FLAVOUR_PT {
        return no(format!(
            "{shown}: unknown flavour {}; run `mgz-instrument` on the original again",
            note.flavour
        ));
    }
    let sidecar = sidecar_path(path, &note);
    check_sidecar(path, &note, &sidecar)?;
    Ok(Instrumented {
        path: path.to_owned(),
        note,
        sidecar,
    })
}

/// Expected path of an instrumented file's sidecar.
pub fn sidecar_path(path: &Path, note: &ModuleNote) -> PathBuf {
    if note.sidecar_path != 0
        && let Some(bytes) = mgz_elf::dynamic::string_at(path, note.sidecar_path)
    {
        return PathBuf::from(OsString::from_vec(bytes));
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".mgza");
    PathBuf::from(name)
}

/// Checks identity and completeness without unpacking the columns.
fn check_sidecar(module: &Path, note: &ModuleNote, sidecar: &Path) -> Result<(), Refusal> {
    let remedy =
        "put it back beside the instrumented file, or run `mgz-instrument` on the original again";
    let no = |text: String| Err(Refusal::CannotRecord(format!("{text}; {remedy}")));
    let (id, header) = match Sidecar::read_header(sidecar) {
        Ok(header) => header,
        Err(error) => {
            return no(format!(
                "{}: the sidecar of {} cannot be used: {error}",
                sidecar.display(),
                module.display()
            ));
        }
    };
    if id != note.sidecar_id {
        return no(format!(
            "{}: this sidecar belongs to another build than {}",
            sidecar.display(),
            module.display()
        ));
    }
    let length = std::fs::metadata(sidecar).map_or(0, |m| m.len());
    let header_end = {
        let mut bytes = [0u8; size_of::<Prelude>()];
        let read = std::fs::File::open(sidecar)
            .and_then(|mut f| std::io::Read::read_exact(&mut f, &mut bytes));
        let header_len = u64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes"));
        read.map_or(0, |()| header_len.saturating_add(bytes.len() as u64))
    };
    let cut = header
        .columns
        .iter()
        .any(|c| header_end.saturating_add(c.offset).saturating_add(c.bytes) > length);
    if cut || header.columns.is_empty() {
        return no(format!(
            "{}: the sidecar of {} is cut off",
            sidecar.display(),
            module.display()
        ));
    }
    Ok(())
}

/// Record ids must differ between modules.
fn overlaps(modules: &[Instrumented]) -> Result<(), Refusal> {
    for (i, a) in modules.iter().enumerate() {
        for b in &modules[..i] {
            let (x, y) = (&a.note, &b.note);
            let apart = x.id_first >= y.id_first.saturating_add(y.id_count)
                || y.id_first >= x.id_first.saturating_add(x.id_count);
            if !apart && x.sidecar_id != y.sidecar_id {
                return Err(Refusal::CannotRecord(format!(
                    "{} and {} were instrumented apart and their record numbers overlap; instrument them together (`mgz-instrument --libs` on the program)",
                    a.path.display(),
                    b.path.display()
                )));
            }
        }
    }
    Ok(())
}

/// The loader ignores LD_PRELOAD for programs that gain privileges.
fn privileged(program: &Path) -> Result<(), Refusal> {
    let Some(what) = crate::program::launch::privilege(program) else {
        return Ok(());
    };
    let executed = crate::program::launch::executed_file(program);
    let by = if executed == program {
        String::new()
    } else {
        format!(" (the interpreter of {})", program.display())
    };
    let (is, remedy) = match what {
        "has file capabilities" => (
            "it has file capabilities (`getcap` shows them)",
            "record a copy without them (`cp` makes one), or record as root",
        ),
        "set-group-ID" => ("it is set-group-ID", "record a copy without that bit"),
        _ => (
            "it is set-user-ID",
            "record a copy without that bit, or as its owner",
        ),
    };
    Err(Refusal::CannotRecord(format!(
        "{}{by}: {is}, and the loader keeps foreign libraries out of programs that gain rights; {remedy}",
        executed.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn programs_are_found_as_execvp_finds_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for (name, mode) in [("a/tool", 0o755), ("b/tool", 0o755), ("a/plain", 0o644)] {
            std::fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            std::fs::write(path(name), "x").unwrap();
            std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let variable = std::env::join_paths([path("missing"), path("a"), path("b")]).unwrap();
        let find = |name: &str| resolve(OsStr::new(name), Some(&variable));
        assert_eq!(find("tool").unwrap(), path("a/tool"));
        assert_eq!(find("nothing").unwrap_err().status(), 127);
        assert_eq!(find("plain").unwrap_err().status(), 126);
        assert_eq!(find("").unwrap_err().status(), 127);
        assert_eq!(
            find(path("b/tool").to_str().unwrap()).unwrap(),
            path("b/tool")
        );
        assert_eq!(find(path("a").to_str().unwrap()).unwrap_err().status(), 126);
        assert_eq!(find("./no/such").unwrap_err().status(), 127);
    }

    #[test]
    fn plain_programs_and_others_are_refused_with_a_remedy() {
        let error = check_program(Path::new("/bin/true"), &["/bin/true".into()]).unwrap_err();
        assert_eq!(error.status(), 125);
        assert!(error.to_string().contains("mgz-instrument"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("s");
        std::fs::write(&script, "hello").unwrap();
        assert_eq!(check_program(&script, &[]).unwrap_err().status(), 126);
        let mut foreign = b"\x7fELF\x01\x01\x01".to_vec();
        foreign.resize(64, 0);
        std::fs::write(&script, foreign).unwrap();
        let error = check_program(&script, &[]).unwrap_err();
        assert_eq!(error.status(), 125);
        assert!(error.to_string().contains("64-bit"), "{error}");
    }

    #[test]
    fn programs_that_may_start_others_are_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("s");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        for program in [
            script.as_path(),
            Path::new("/usr/bin/env"),
            Path::new("/bin/sh"),
        ] {
            let checked = check_program(program, &[]).unwrap();
            assert!(checked.starts_others && checked.instrumented.is_empty());
        }
    }

    #[test]
    fn overlapping_ids_are_refused() {
        let module = |id_first, id_count, id: u8| Instrumented {
            path: "x".into(),
            note: ModuleNote {
                id_first,
                id_count,
                sidecar_id: [id; 16],
                ..ModuleNote::default()
            },
            sidecar: "x.mgza".into(),
        };
        assert!(overlaps(&[module(0, 10, 1), module(10, 5, 2)]).is_ok());
        assert!(overlaps(&[module(0, 11, 1), module(10, 5, 2)]).is_err());
        assert!(
            overlaps(&[module(0, 11, 1), module(0, 11, 1)]).is_ok(),
            "the same build twice"
        );
    }

    #[test]
    fn the_libraries_of_a_program_are_found() {
        // The test binary itself needs the C library.
        let exe = std::env::current_exe().unwrap();
        let found = closure(&exe);
        assert!(
            found
                .iter()
                .any(|p| p.to_string_lossy().contains("libc.so")),
            "{found:?}"
        );
    }
}
