//! Detects programs that search for files beside themselves: in another folder they find none.
//!
//! Two signs are visible in the file: it reads the link that leads to it (`/proc/self/exe`), or it
//! has paths that begin with the parent folder. Programs that derive their folder from their first
//! argument (Emacs, gcc) have such paths. Names of source files in messages look similar and do not
//! count.

use crate::image::Elf;
use crate::symbols;
use memchr::memmem;
use object::elf;

/// The link to the executable.
const LINK: &[u8] = b"/proc/self/exe\0";
/// Functions that read links.
const READ_LINKS: [&[u8]; 5] = [
    b"readlink",
    b"readlinkat",
    b"__readlink_chk",
    b"__readlinkat_chk",
    b"realpath",
];
const PARENT_PREFIX: &[u8] = b"../";
/// Source: Chosen.
const MAX_PATH_BYTES: usize = 96;
/// Endings of names of sources.
const SOURCES: [&str; 16] = [
    ".c", ".h", ".cc", ".hh", ".cpp", ".hpp", ".cxx", ".hxx", ".c++", ".rs", ".d", ".y", ".l",
    ".inc", ".def", ".S",
];

/// The path by which an executable may search for files beside itself; `None` if there is no sign
/// of it.
pub fn find_sign(elf: &Elf) -> Option<String> {
    if elf.interpreter().is_none() && !elf.is_static_executable() {
        return None;
    }
    let data = || {
        elf.loads()
            .filter(|s| s.flags & elf::PF_X.0 == 0)
            .filter_map(|s| elf.at(s.vaddr)?.get(..s.filesz as usize))
    };
    let reads_links =
        || elf.is_static_executable() || symbols::any_imported(elf, |n| READ_LINKS.contains(&n));
    if data().any(|bytes| memmem::find(bytes, LINK).is_some()) && reads_links() {
        return Some(String::from_utf8_lossy(&LINK[..LINK.len() - 1]).into_owned());
    }
    data().find_map(path_above)
}

/// The first text that is a path through the parent folder.
fn path_above(bytes: &[u8]) -> Option<String> {
    memmem::find_iter(bytes, PARENT_PREFIX).find_map(|at| {
        let begins = at == 0 || matches!(bytes[at - 1], 0 | b'/');
        let rest = &bytes[at..bytes.len().min(at + MAX_PATH_BYTES)];
        let end = memchr::memchr(0, rest)?;
        let text = std::str::from_utf8(&rest[..end]).ok()?;
        let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-+%".contains(c);
        let names_folder =
            text[PARENT_PREFIX.len()..].starts_with(|c: char| c.is_ascii_alphabetic());
        let is_source = SOURCES.iter().any(|s| text.ends_with(s));
        (begins && names_folder && text.chars().all(is_path) && !is_source).then(|| text.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_by_way_of_the_folder_above_are_signs() {
        let found = |text: &[u8]| path_above(text);
        assert_eq!(
            found(b"\0../native-lisp/\0"),
            Some("../native-lisp/".into())
        );
        assert_eq!(found(b"%s/../lib/x\0"), Some("../lib/x".into()));
        for other in [
            &b"\0../src/main.c\0"[..],
            b"\0../../gcc/tree.cc\0",
            b"\0../\0",
            b"a ... ../b\0",
            b"\0../no end",
            b"\0../lib is what \0",
        ] {
            assert_eq!(found(other), None, "{}", String::from_utf8_lossy(other));
        }
    }
}
