//! Checks if files behave the same when loaded from another folder.

use mgz_elf::Elf;
use mgz_elf::image::dt;
use mgz_elf::own_folder;
use object::{Object, ObjectSymbol};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Functions by which a module finds the path of its own file.
const TELL_THE_FILE: [&[u8]; 3] = [b"dladdr", b"dladdr1", b"dlinfo"];

/// Modules that call these functions but use only base addresses and function names: NumPy's core,
/// which checks if the interpreter is its caller.
const DO_NOT_LOOK_AT_IT: [&str; 1] = ["_multiarray_umath"];

/// True if the loader searches for libraries relative to the file, so that it cannot be moved
/// unchanged.
pub fn finds_libraries_beside_itself(bytes: &[u8]) -> bool {
    Elf::parse(bytes).is_ok_and(|elf| names_origin(&elf))
}

/// The path by which the program may look for files beside itself, if it may.
pub fn looks_beside_itself(bytes: &[u8]) -> Option<String> {
    own_folder::find_sign(&Elf::parse(bytes).ok()?)
}

fn names_origin(elf: &Elf) -> bool {
    use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH};
    [DT_RUNPATH, DT_RPATH, DT_NEEDED]
        .into_iter()
        .flat_map(|tag| elf.dynamic_strings(dt(tag)))
        .any(|path| path.contains("$ORIGIN") || path.contains("${ORIGIN}"))
}

/// Reason why a module that a program opens by its path, or the program, could notice that a copy
/// in another folder is opened instead; `None` if neither can. The copy finds the same libraries as
/// the module.
pub fn why_not(path: &Path, bytes: &[u8]) -> Option<&'static str> {
    let (Ok(elf), Ok(file)) = (Elf::parse(bytes), object::File::parse(bytes)) else {
        return Some("it cannot be read as an ELF file");
    };
    let separators = b":;$";
    if path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|b| separators.contains(b))
    {
        return Some("its path cannot stand in a library search path");
    }
    // The loader uses the folder of the link, not that of its target.
    if names_origin(&elf) && path.is_symlink() {
        return Some("it finds libraries beside a symbolic link to it");
    }
    // Files that need it by that name would load the original in addition to the copy.
    if elf.dynamic_value(dt(object::elf::DT_SONAME)).is_some() {
        return Some("it is a library that others may need");
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if DO_NOT_LOOK_AT_IT.contains(&name.split('.').next().unwrap_or_default()) {
        return None;
    }
    let asks = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_undefined())
        .any(|symbol| {
            symbol
                .name_bytes()
                .is_ok_and(|name| TELL_THE_FILE.contains(&name))
        });
    asks.then_some("it asks which file it was loaded from")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn programs_that_need_a_library_beside_themselves_stay_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("lib.c"), "int one(void) { return 1; }\n").unwrap();
        std::fs::write(
            path("a.c"),
            "int one(void); int main(void) { return one(); }\n",
        )
        .unwrap();
        let compile = |soname: &str| {
            let mut library = Command::new("cc");
            library.args(["-shared", "-fPIC", &format!("-Wl,-soname,{soname}"), "-o"]);
            library.args([path("lib.so"), path("lib.c")]);
            let mut program = Command::new("cc");
            program
                .arg("-o")
                .args([path("a"), path("a.c"), path("lib.so")]);
            [library, program]
                .iter_mut()
                .all(|c| c.status().is_ok_and(|s| s.success()))
        };
        if !compile("lib.so") {
            eprintln!("SKIPPED: cc cannot link a library");
            return;
        }
        let is_bound = || finds_libraries_beside_itself(&std::fs::read(path("a")).unwrap());
        assert!(!is_bound());
        assert!(compile("$ORIGIN/lib.so"));
        assert!(is_bound());
    }
}
