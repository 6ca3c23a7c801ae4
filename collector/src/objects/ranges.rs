//! Readable memory of a process by kind, from `/proc/PID/maps`.

use mgz_annotations_schema::ObjectKind;
use mgz_perf::proc_maps::{self, MapsLine};

/// Adjacent mappings of one kind and file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRange {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Kind of the memory.
    pub kind: ObjectKind,
    /// File, or the kernel's name. Empty for memory without one.
    pub name: String,
    /// Memory that cannot be read lies right below, as below a stack.
    pub guarded: bool,
}

/// Files of the recorder and the kernel in the process, which hold no data of the program.
fn is_ours(path: &str) -> bool {
    path.starts_with("/memfd:mgz-")
        || matches!(path, "[vdso]" | "[vvar]" | "[vvar_vclock]" | "[vsyscall]")
}

/// Mappings that can be read, with neighbours of the same file (text, constants, data) joined.
/// Lines that make no sense are left out. `extent_of`: the bytes that a file's image takes in
/// memory; 0 if the file is no program or library. Unnamed memory behind a file's data is the file's
/// zero-initialised part as far as its image reaches. The kernel may have put other memory right
/// behind it, even into the same mapping.
pub fn parse_mappings(text: &str, extent_of: &mut dyn FnMut(&str) -> u64) -> Vec<ObjectRange> {
    let mut list: Vec<ObjectRange> = Vec::new();
    // The file that was mapped last from its beginning, and the address of that.
    let mut image: (&str, u64) = ("", 0);
    // End of the last mapping that cannot be read.
    let mut guard = 0;
    for line in proc_maps::lines(text) {
        if !line.is_readable() {
            guard = line.end;
            continue;
        }
        if is_ours(line.name) {
            continue;
        }
        if line.offset == 0 && ObjectKind::of_mapping(line.name) == ObjectKind::File {
            image = (line.name, line.start);
        }
        let mut mapping = ObjectRange {
            start: line.start,
            end: line.end,
            kind: ObjectKind::of_mapping(line.name),
            name: line.name.into(),
            guarded: line.start == guard,
        };
        if let Some(last) = list.last_mut()
            && last.end == mapping.start
        {
            if last.name == mapping.name && last.kind != ObjectKind::Stack {
                last.end = mapping.end;
                continue;
            }
            if last.kind == ObjectKind::File && mapping.name.is_empty() {
                last.end = end_of_zeros(&line, image, &last.name, extent_of);
                mapping.start = last.end;
            }
        }
        if mapping.start < mapping.end {
            list.push(mapping);
        }
    }
    list
}

/// End of the part of an unnamed mapping that belongs to the file before it: its start if no part
/// does.
fn end_of_zeros(
    unnamed: &MapsLine<'_>,
    image: (&str, u64),
    file: &str,
    extent_of: &mut dyn FnMut(&str) -> u64,
) -> u64 {
    if image.0 != file {
        return unnamed.start;
    }
    let end = image.1.saturating_add(extent_of(file));
    end.clamp(unnamed.start, unnamed.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, kind: ObjectKind, name: &str) -> ObjectRange {
        ObjectRange {
            start,
            end,
            kind,
            name: name.into(),
            guarded: false,
        }
    }

    #[test]
    fn what_lies_above_memory_without_rights_is_guarded() {
        let text = "\
7ffff0000000-7ffff0001000 ---p 00000000 00:00 0 
7ffff0001000-7ffff0801000 rw-p 00000000 00:00 0 
7ffff0801000-7ffff0802000 ---p 00000000 00:00 0 
7ffff0802000-7ffff1002000 rw-p 00000000 00:00 0 
7ffff1002000-7ffff1003000 rw-s 00000000 00:01 7                          /memfd:mgz-arena (deleted)
7ffff1003000-7ffff1004000 rw-p 00000000 00:00 0 
";
        let guarded: Vec<bool> = parse_mappings(text, &mut |_| 0)
            .iter()
            .map(|m| m.guarded)
            .collect();
        assert_eq!(guarded, [true, true, false]);
    }

    #[test]
    fn a_files_parts_are_one_and_its_zeros_belong_to_it() {
        let text = "\
555555554000-555555555000 r--p 00000000 fe:01 42                         /usr/bin/a b
555555555000-555555556000 r-xp 00001000 fe:01 42                         /usr/bin/a b
555555556000-555555557000 rw-p 00002000 fe:01 42                         /usr/bin/a b
555555557000-555555559000 rw-p 00000000 00:00 0 
55555555a000-55555557b000 rw-p 00000000 00:00 0                          [heap]
7ffff0000000-7ffff0021000 rw-p 00000000 00:00 0 
7ffff0021000-7ffff4000000 ---p 00000000 00:00 0 
7ffff7000000-7ffff7001000 rw-s 00000000 00:01 7                          /memfd:mgz-arena (deleted)
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]
nonsense
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";
        assert_eq!(
            parse_mappings(text, &mut |_| 0x5000),
            [
                mapping(
                    0x5555_5555_4000,
                    0x5555_5555_9000,
                    ObjectKind::File,
                    "/usr/bin/a b"
                ),
                mapping(
                    0x5555_5555_a000,
                    0x5555_5557_b000,
                    ObjectKind::Heap,
                    "[heap]"
                ),
                mapping(
                    0x7fff_f000_0000,
                    0x7fff_f002_1000,
                    ObjectKind::Anonymous,
                    ""
                ),
                mapping(
                    0x7fff_fffd_e000,
                    0x7fff_ffff_f000,
                    ObjectKind::Stack,
                    "[stack]"
                ),
            ]
        );
    }

    #[test]
    fn memory_behind_a_file_is_not_the_files() {
        // The kernel has put memory of `mmap` right behind the zeros of one file, and behind a file
        // without zeros.
        let text = "\
7ffff0000000-7ffff0002000 r-xp 00000000 fe:01 42                         /lib/a.so
7ffff0002000-7ffff0003000 rw-p 00002000 fe:01 42                         /lib/a.so
7ffff0003000-7ffff0100000 rw-p 00000000 00:00 0 
7ffff0200000-7ffff0300000 r--p 00000000 fe:01 43                         /data/table
7ffff0300000-7ffff0400000 rw-p 00000000 00:00 0 
";
        let mut extents = |file: &str| if file == "/lib/a.so" { 0x4000 } else { 0 };
        let (lib, data) = (0x7fff_f000_0000, 0x7fff_f020_0000);
        assert_eq!(
            parse_mappings(text, &mut extents),
            [
                mapping(lib, lib + 0x4000, ObjectKind::File, "/lib/a.so"),
                mapping(lib + 0x4000, lib + 0x10_0000, ObjectKind::Anonymous, ""),
                mapping(data, data + 0x10_0000, ObjectKind::File, "/data/table"),
                mapping(
                    data + 0x10_0000,
                    data + 0x20_0000,
                    ObjectKind::Anonymous,
                    ""
                ),
            ]
        );
    }

    #[test]
    fn this_process_has_a_heap_or_a_stack() {
        let seen = parse_mappings(
            &proc_maps::read_process_maps(std::process::id()).unwrap(),
            &mut |_| 0,
        );
        assert!(
            seen.iter().any(|m| m.kind == ObjectKind::Stack)
                && seen.iter().any(|m| m.kind == ObjectKind::File)
        );
        assert!(seen.windows(2).all(|w| w[0].end <= w[1].start));
    }
}
