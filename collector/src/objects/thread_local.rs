//! Thread-local storage of a process's first thread.
//!
//! Static blocks of all modules lie below the address in `%fs`, the executable's next to it, and
//! the C library's control block begins there (variant II of the ELF ABI). Other threads have both
//! inside the memory of their stacks. Blocks of modules that are loaded later lie on the heap.

use crate::objects::Instance;
use crate::objects::Object;
use crate::objects::stacks::FirstThread;
use crate::objects::types::Layout;
use mgz_annotations_schema::ObjectKind;
use object::LittleEndian;
use object::elf::{FileHeader64, PT_TLS};
use object::read::elf::{FileHeader, ProgramHeader};
use std::collections::BTreeSet;
use std::path::Path;

/// Bytes of the control block: glibc's `struct pthread`; musl's is smaller.
const CONTROL: u64 = 0x900;

/// Bytes of a file's block, as `PT_TLS` gives them; 0 if it has none or cannot be read.
fn block(path: &Path) -> u64 {
    let Ok(file) = std::fs::File::open(path) else {
        return 0;
    };
    // SAFETY: the map is private and read-only; a concurrent truncation of the file by another
    // process could fault, as for every program that maps its input.
    let data = unsafe { memmap2::Mmap::map(&file) };
    data.map_or(0, |data| block_of(&data))
}

fn block_of(data: &[u8]) -> u64 {
    let header = FileHeader64::<LittleEndian>::parse(data);
    let headers = header.and_then(|h| h.program_headers(LittleEndian, data));
    let tls = headers.iter().copied().flatten();
    let tls = tls.filter(|h| h.p_type(LittleEndian) == PT_TLS);
    let bytes = tls.map(|h| {
        let (bytes, align) = (h.p_memsz(LittleEndian), h.p_align(LittleEndian).max(1));
        bytes.checked_next_multiple_of(align).unwrap_or(0)
    });
    bytes.fold(0, u64::saturating_add)
}

/// The storage of first threads, in processes that have loaded these modules. `mapped`: what was
/// seen of the processes' mappings.
pub fn instances<'a>(
    threads: &[FirstThread],
    modules: impl Iterator<Item = (u32, &'a Path)> + Clone,
    mapped: &[Instance],
) -> Vec<Instance> {
    let of = |thread: &FirstThread| {
        let loaded = modules.clone().filter(|m| m.0 == thread.pid).map(|m| m.1);
        let seen = mapped.iter().filter(|i| i.process == thread.pid);
        let seen = seen.filter(|i| i.object.kind == ObjectKind::File);
        let files: BTreeSet<&Path> = loaded
            .chain(seen.map(|i| Path::new(&i.object.name)))
            .collect();
        let bytes: u64 = files
            .into_iter()
            .map(block)
            .fold(0, u64::saturating_add)
            .min(thread.area);
        Instance {
            process: thread.pid,
            start: thread.area - bytes,
            bytes: bytes.saturating_add(CONTROL),
            begin_ns: thread.begin_ns,
            end_ns: thread.end_ns,
            object: Object {
                kind: ObjectKind::ThreadLocal,
                name: "[thread-local storage]".to_owned(),
                of_type: String::new(),
                module: String::new(),
                layout: Layout::default(),
            },
        }
    };
    threads.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_block_of_a_program_lies_below_the_thread_pointer() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
        let text = "_Thread_local long table[8192]; _Thread_local char last = 1;\n\
                    int main(int n, char **v) { return (int)table[n] + last; }\n";
        std::fs::write(&source, text).unwrap();
        let mut compiler = Command::new("cc");
        let compiler = compiler.args(["-O1", "-o"]).arg(&program).arg(&source);
        assert!(compiler.status().unwrap().success());
        let bytes = block(&program);
        assert!((65537..65537 + 64).contains(&bytes), "{bytes}");
        assert_eq!(block(&source), 0);
        assert_eq!(block(Path::new("/nowhere")), 0);
        let thread = FirstThread {
            pid: 7,
            area: 0x7f00_0010_0000,
            begin_ns: 0,
            end_ns: u64::MAX,
        };
        let modules = [(7, program.as_path()), (8, Path::new("/nowhere"))];
        let found = instances(std::slice::from_ref(&thread), modules.into_iter(), &[]);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].start, found[0].bytes),
            (thread.area - bytes, bytes + CONTROL)
        );
    }
}
