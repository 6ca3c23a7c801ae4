//! Programs that start others, and the programs that they may start, as far as this is known before
//! they run.

use crate::program::linked_files::closure;
use crate::program::path_search::resolve;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol};
use std::collections::HashSet;
use std::ffi::{CString, OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum depth of interpreters of interpreters, as in the kernel.
const MAX_INTERPRETER_DEPTH: usize = 5;
/// Maximum depth of scripts that name scripts.
const SCRIPTS: usize = 3;
/// Maximum bytes and words of a script that are examined.
const SCRIPT: u64 = 256 << 10;
const WORDS: usize = 4096;

/// The beginning of a file.
fn start(path: &Path, bytes: u64) -> Vec<u8> {
    let mut out = Vec::new();
    // An unreadable file counts as empty.
    let _ = std::fs::File::open(path).and_then(|f| f.take(bytes).read_to_end(&mut out));
    out
}

/// The interpreter that a script names in its first line.
pub fn interpreter(path: &Path) -> Option<PathBuf> {
    let text = start(path, 256);
    let line = text.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let name = line
        .split(|b| matches!(b, b' ' | b'\t' | b'\r'))
        .find(|w| !w.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// The file that the kernel executes for a file: itself, or the interpreter behind all scripts.
pub fn executed_file(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_INTERPRETER_DEPTH {
        match interpreter(&path) {
            Some(next) => path = next,
            None => break,
        }
    }
    path
}

/// Programs and libraries named by words: the arguments, including command lines for a shell, and
/// scripts among them.
pub fn named(program: &Path, arguments: &[OsString]) -> Vec<PathBuf> {
    let variable = std::env::var_os("PATH");
    let mut found: Vec<PathBuf> = Vec::new();
    let mut texts: Vec<(Vec<u8>, usize)> = arguments
        .iter()
        .map(|a| (a.as_bytes().to_vec(), 0))
        .collect();
    if interpreter(program).is_some() {
        texts.push((start(program, SCRIPT), 1));
    }
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    while let Some((text, depth)) = texts.pop() {
        let words: Vec<&[u8]> = text
            .split(|b| b.is_ascii_whitespace() || b"'\"`();&|=<>,[]{}$".contains(b))
            .filter(|w| (1..4096).contains(&w.len()) && !w.contains(&0))
            .take(WORDS)
            .collect();
        for word in words {
            if !seen.insert(word.to_vec()) {
                continue;
            }
            let word = OsStr::from_bytes(word);
            // An interpreter reads scripts that are not executable, too.
            let path = match resolve(word, variable.as_deref()) {
                Ok(path) => path,
                Err(_) if depth == 0 && Path::new(word).is_file() => PathBuf::from(word),
                Err(_) => continue,
            };
            if found.contains(&path) {
                continue;
            }
            if depth < SCRIPTS && is_text(&path) {
                texts.push((start(&path, SCRIPT), depth + 1));
            }
            found.push(path);
        }
    }
    found
}

/// True if a file is the text of a script (or of a makefile, or of anything that is no program).
fn is_text(path: &Path) -> bool {
    let text = start(path, 4096);
    !text.is_empty() && !text.contains(&0)
}

/// Functions by which programs start others or load code.
const STARTS: [&str; 19] = [
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "execl",
    "execle",
    "execlp",
    "fexecve",
    "execveat",
    "posix_spawn",
    "posix_spawnp",
    "system",
    "popen",
    "fork",
    "vfork",
    "dlopen",
    "dlmopen",
    "syscall",
    "clone",
];

/// Libraries that nearly all programs have, and that start programs only on request.
fn is_basic(path: &Path) -> bool {
    const BASIC: [&str; 15] = [
        "libc.",
        "libm.",
        "ld-",
        "libpthread.",
        "libdl.",
        "librt.",
        "libutil.",
        "libstdc++.",
        "libgcc_s.",
        "libgomp.",
        "libgfortran.",
        "libquadmath.",
        "libatomic.",
        "libresolv.",
        "libz.",
    ];
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    BASIC.iter().any(|b| name.starts_with(b))
}

/// True if a program can start another one, or load a library that it is not linked to. (This is
/// unknown for a static program, which counts as one that cannot.)
pub fn can_start_others(program: &Path) -> bool {
    closure(program)
        .iter()
        .filter(|path| !is_basic(path))
        .any(|path| {
            let Ok(file) = std::fs::File::open(path) else {
                return false;
            };
            // SAFETY: private and read-only; a concurrent truncation of the file harms every
            // program that maps it.
            let Ok(data) = (unsafe { memmap2::Mmap::map(&file) }) else {
                return false;
            };
            let Ok(file) = ElfFile64::<Endianness>::parse(&*data) else {
                return false;
            };
            file.dynamic_symbols()
                .any(|s| s.is_undefined() && s.name().is_ok_and(|n| STARTS.contains(&n)))
        })
}

/// The privilege that keeps the runtime out of a program. The kernel reports additional rights to
/// the loader (`AT_SECURE`), which then ignores preloaded libraries.
pub fn privilege(program: &Path) -> Option<&'static str> {
    let program = executed_file(program);
    let meta = std::fs::metadata(&program).ok()?;
    if gains_nothing(&program) {
        return None;
    }
    // SAFETY: no arguments.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    const SET_GROUP: u32 = 0o2010;
    if meta.mode() & 0o4000 != 0 && meta.uid() != uid {
        Some("set-user-ID")
    } else if meta.mode() & SET_GROUP == SET_GROUP && meta.gid() != gid {
        Some("set-group-ID")
    } else if uid != 0 && has_capabilities(&program) {
        Some("has file capabilities")
    } else {
        None
    }
}

/// True if the kernel ignores mode bits and capabilities of the file that would add rights.
fn gains_nothing(program: &Path) -> bool {
    let Ok(name) = CString::new(program.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: zero is a valid value of the structure, which lives across the call with the path;
    // prctl takes integers.
    unsafe {
        let mut system: libc::statvfs = std::mem::zeroed();
        libc::statvfs(name.as_ptr(), &mut system) == 0 && system.f_flag & libc::ST_NOSUID != 0
            || libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1
    }
}

/// True if a file gives its process capabilities (`setcap`).
fn has_capabilities(program: &Path) -> bool {
    let Ok(name) = CString::new(program.as_os_str().as_bytes()) else {
        return false;
    };
    let mut value = [0u8; 64];
    // SAFETY: both names end with zero; the buffer has the length that is passed.
    let length = unsafe {
        libc::getxattr(
            name.as_ptr(),
            c"security.capability".as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    usize::try_from(length).is_ok_and(|n| gives(&value[..n.min(value.len())]))
}

/// `struct vfs_cap_data`: whether it is effective or has permitted capabilities; inheritable ones
/// alone give nothing to a process that has none.
fn gives(value: &[u8]) -> bool {
    const EFFECTIVE: u32 = 1;
    let word = |at: usize| {
        let bytes = value.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let permitted = [4, 12].into_iter().filter_map(word).any(|w| w != 0);
    word(0).is_some_and(|head| head & EFFECTIVE != 0) || permitted
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn scripts_tell_their_interpreters() {
        let dir = tempfile::tempdir().unwrap();
        let plain = script(dir.path(), "a", "#!/bin/sh -e\necho\n");
        assert_eq!(interpreter(&plain), Some("/bin/sh".into()));
        let second = script(dir.path(), "b", &format!("#! {} x\n", plain.display()));
        assert_eq!(executed_file(&second), Path::new("/bin/sh"));
        assert_eq!(interpreter(Path::new("/proc/self/exe")), None);
        let round = script(dir.path(), "c", &format!("#!{}/c\n", dir.path().display()));
        assert_eq!(executed_file(&round), round);
    }

    #[test]
    fn programs_are_found_in_arguments_and_scripts() {
        let dir = tempfile::tempdir().unwrap();
        let app = script(dir.path(), "app", "\x7fELF\0");
        let inner = script(
            dir.path(),
            "inner.sh",
            &format!("exec '{}' x\n", app.display()),
        );
        let outer = script(
            dir.path(),
            "outer.sh",
            &format!("#!/bin/sh\nPATH=/bin\n. {} \"$@\"\n", inner.display()),
        );
        assert!(named(&outer, &[]).contains(&app));
        let line: OsString = format!("ulimit -s unlimited; {} 5", app.display()).into();
        assert_eq!(
            named(Path::new("/bin/sh"), &["-c".into(), line]),
            std::slice::from_ref(&app)
        );
        // A makefile is no script, and has no execute bit.
        let makefile = dir.path().join("Makefile");
        std::fs::write(&makefile, format!("all:\n\t{} 5\n", app.display())).unwrap();
        let named = named(Path::new("/usr/bin/make"), &["-f".into(), makefile.into()]);
        assert!(named.contains(&app), "{named:?}");
    }

    #[test]
    fn who_can_start_others_is_told_by_what_it_imports() {
        assert!(can_start_others(Path::new("/bin/sh")));
        assert!(can_start_others(Path::new("/usr/bin/env")));
        assert!(!can_start_others(Path::new("/bin/true")));
        assert!(!can_start_others(Path::new("/no/such/file")));
    }

    #[test]
    fn capabilities_are_read_as_the_kernel_reads_them() {
        let value = |magic: u32, permitted: u32, inheritable: u32| {
            [magic, permitted, inheritable, 0, 0]
                .iter()
                .flat_map(|w| w.to_le_bytes())
                .collect::<Vec<u8>>()
        };
        const REVISION_2: u32 = 0x0200_0000;
        assert!(gives(&value(REVISION_2 | 1, 1 << 10, 0)));
        assert!(gives(&value(REVISION_2, 1 << 10, 0)));
        assert!(!gives(&value(REVISION_2, 0, 1 << 10)));
        assert!(!gives(&[]));
    }
}
