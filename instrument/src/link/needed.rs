//! A library that a finished program needs in addition, before all others.
//!
//! The new entry is the first one in the dynamic section, so that the library's functions are found
//! before those of the others. The dynamic strings, and an array that has no room, move into an
//! appended segment, as for [a search path](crate::link::runpath).

use crate::link::elf_writer::{self, Additions, Image, NewSection};
use crate::program::sanitizers::is_runtime_library;
use mgz_abi::shared_memory::PAGE_SIZE;
use mgz_elf::Refusal;
use mgz_elf::image::{Elf, dt};
use mgz_elf::payload::find_payload;
use object::elf;

/// Bytes of an entry of the dynamic section.
const ENTRY: usize = 16;

/// Adds a DT_NEEDED entry to a dynamic executable.
pub fn with_library<'a>(elf: &Elf<'a>, name: &str) -> Result<Image<'a>, Refusal> {
    check(elf, name)?;
    let cannot = || Refusal::declined("its dynamic section is damaged; link the program again");
    let (table_at, capacity) = elf.dynamic_at.ok_or_else(cannot)?;
    let index_of = |tag| elf.dynamic.iter().position(|d| d.0 == dt(tag));
    let strtab = index_of(elf::DT_STRTAB).ok_or_else(cannot)?;
    let strsz = index_of(elf::DT_STRSZ).ok_or_else(cannot)?;
    let size = usize::try_from(elf.dynamic[strsz].1).map_err(|_| cannot())?;
    let old = elf.at(elf.dynamic[strtab].1).and_then(|b| b.get(..size));
    let mut strings = old.ok_or_else(cannot)?.to_vec();
    let name_at = strings.len() as u64;
    strings.extend_from_slice(name.as_bytes());
    strings.push(0);

    let vaddr = elf_writer::segment_address(elf)?;
    let strings_at = elf_writer::headers_len(elf).next_multiple_of(8);
    let mut entries = elf.dynamic.clone();
    entries[strtab].1 = vaddr + strings_at as u64;
    entries[strsz].1 = strings.len() as u64;
    entries.insert(0, (dt(elf::DT_NEEDED), name_at));
    let mut array: Vec<u8> = (entries.iter())
        .flat_map(|e| [e.0.to_le_bytes(), e.1.to_le_bytes()])
        .flatten()
        .collect();

    let mut segment = vec![0; strings_at];
    segment.extend_from_slice(&strings);
    let mut new = Additions {
        vaddr,
        sections: vec![NewSection {
            name: ".dynstr",
            kind: elf::SHT_STRTAB.0,
            flags: elf::SHF_ALLOC.0,
            addr: vaddr + strings_at as u64,
            size: strings.len() as u64,
            align: 1,
        }],
        payload: find_payload(elf),
        ..Additions::default()
    };
    // A DT_NULL must remain after the last entry.
    if entries.len() < capacity {
        new.overwrite.push((table_at, array));
    } else {
        array.extend_from_slice(&[0; ENTRY]);
        // The loader writes into the array.
        segment.resize(segment.len().next_multiple_of(PAGE_SIZE), 0);
        let at = vaddr + segment.len() as u64;
        new.writable_from = Some(segment.len());
        new.dynamic = Some((at, array.len() as u64));
        new.sections.push(NewSection {
            name: ".dynamic",
            kind: elf::SHT_DYNAMIC.0,
            flags: elf::SHF_ALLOC.0 | elf::SHF_WRITE.0,
            addr: at,
            size: array.len() as u64,
            align: 8,
        });
        segment.extend_from_slice(&array);
    }
    new.segment = segment;
    elf_writer::assemble(elf, new)
}

/// Refuses programs for which the entry would have no effect, or a harmful one.
fn check(elf: &Elf, name: &str) -> Result<(), Refusal> {
    let Some(loader) = elf.interpreter() else {
        return Err(Refusal::declined(match elf.is_static_executable() {
            true => {
                "a static executable, which loads no library; link it dynamically to use pools and huge pages"
            }
            false => {
                "a shared library, which cannot load another one before the program's; fix the program"
            }
        }));
    };
    if !loader.contains("/ld-linux-x86-64.so") {
        return Err(Refusal::declined(format!(
            "its loader is {loader}, which does not look for a needed library beside the program; only that of glibc does"
        )));
    }
    let needed = elf.dynamic_strings(dt(elf::DT_NEEDED));
    if let Some(first) = needed.iter().find(|name| is_runtime_library(name)) {
        return Err(Refusal::declined(format!(
            "{first} must be its first library; build the program without the sanitizer"
        )));
    }
    if needed.iter().any(|known| known == name) {
        return Err(Refusal::declined(format!("it needs {name} already")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A program that prints a function's result, and a library with another result.
    const PROGRAM: &str = "#include <stdio.h>\nint says(void);\n#ifdef OWN\nint says(void){return 1;}\n#else\nint main(void){printf(\"%d\\n\",says());return 0;}\n#endif\n";

    fn cc(folder: &std::path::Path, arguments: &[&str]) {
        let status = Command::new("cc")
            .current_dir(folder)
            .args(arguments)
            .status();
        assert!(status.unwrap().success(), "{arguments:?}");
    }

    fn added(folder: &std::path::Path, program: &str) -> Result<String, Refusal> {
        use std::os::unix::fs::PermissionsExt;
        let data = std::fs::read(folder.join(program)).unwrap();
        let elf = Elf::parse(&data).unwrap();
        let image = with_library(&elf, "$ORIGIN/first.so")?.to_bytes();
        let again = Elf::parse(&image).unwrap();
        let needed = again.dynamic_strings(dt(elf::DT_NEEDED));
        assert_eq!(needed[0], "$ORIGIN/first.so");
        assert_eq!(needed[1..], elf.dynamic_strings(dt(elf::DT_NEEDED)));
        let file = folder.join("fixed");
        std::fs::write(&file, image).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        let done = Command::new(&file).output().unwrap();
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    #[test]
    fn the_added_library_comes_before_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        std::fs::write(folder.join("a.c"), PROGRAM).unwrap();
        std::fs::write(folder.join("b.c"), "int says(void){return 2;}\n").unwrap();
        cc(
            folder,
            &["-shared", "-fPIC", "-DOWN", "-o", "libown.so", "a.c"],
        );
        cc(folder, &["-shared", "-fPIC", "-o", "first.so", "b.c"]);
        // The linker leaves spare entries by default; without them the array moves.
        for options in [
            &[][..],
            &["-no-pie"],
            &["-Wl,-z,norelro", "-Wl,--spare-dynamic-tags=0"],
        ] {
            let common = ["-o", "app", "a.c", "-L.", "-lown", "-Wl,-rpath,$ORIGIN"];
            cc(folder, &[&common[..], options].concat());
            assert_eq!(added(folder, "app").unwrap(), "2\n", "{options:?}");
        }
    }

    #[test]
    fn static_programs_are_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        std::fs::write(folder.join("a.c"), "int main(void){return 0;}\n").unwrap();
        for options in ["-static", "-static-pie"] {
            cc(folder, &[options, "-o", "app", "a.c"]);
            let why = added(folder, "app").unwrap_err().to_string();
            assert!(why.contains("static"), "{why}");
        }
        cc(folder, &["-shared", "-fPIC", "-o", "app", "a.c"]);
        assert!(
            added(folder, "app")
                .unwrap_err()
                .to_string()
                .contains("shared library")
        );
    }
}
