//! Programs that read or change their own memory through the kernel: `/proc/self/mem`,
//! `process_vm_readv` and `process_vm_writev`, or a child that traces its parent.
//!
//! These bypass page protection and accept any address, so it is unknown what is read. The program
//! needs a mode that leaves the original unchanged. The search finds
//!
//! * names of that file, whole or as a format (`/proc/%d/mem`), in data or in the numbers of code;
//! * the name in two parts: the folder's name, and a text that ends in `/mem` or is passed to a
//!   function that opens files;
//! * the two functions, by name or number, where the file also asks for its process id;
//! * `ptrace` with a request that reads or writes memory, in a file that makes children, and that
//!   asks for its parent's id or executes no other program, so that the other process runs the same
//!   program.

use crate::discover::restartable::calls_by_number;
use crate::discover::{self_reads, state_calls};
use crate::program::{Input, Program};
use memchr::memmem;
use mgz_elf::Elf;

/// Source: Chosen.
const MAX_NAME_BYTES: usize = 64;
/// Maximum bytes of code between the numbers that form a name on the stack. Source: Chosen.
const MAX_CODE_BYTES_PER_NUMBER: usize = 64;
/// Numbers of system calls.
const PROCESS_VM_READV: u32 = 310;
const PROCESS_VM_WRITEV: u32 = 311;
const GETPID: u32 = 39;

/// Description of the file. (The text is longer than the name, so that this program does not seem
/// to open the file.)
const NAME: &str = "its memory file /proc/self/mem";

/// Functions that make these calls, and those that select the other process.
const REACHES: [&str; 2] = ["process_vm_readv", "process_vm_writev"];
const ASKS: [&str; 2] = ["getpid", "__getpid"];
const FORKS: [&str; 5] = ["fork", "_Fork", "vfork", "clone", "__fork"];
const ASKS_PARENT: [&str; 1] = ["getppid"];
const EXECUTES: [&str; 9] = [
    "execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat",
];

/// Means by which a program may read its own memory, and an address that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryFileUse {
    pub(crate) what: &'static str,
    pub(crate) at: u64,
}

/// The first sign of such a use. A sanitizer's runtime that is part of the file (`has_sanitizer`)
/// makes such calls and has parts of such names for its own use.
pub(crate) fn find_memory_file_use(
    elf: &Elf,
    input: &Input,
    program: &Program,
) -> Option<MemoryFileUse> {
    let whole = named(input);
    if input.has_sanitizer {
        return whole;
    }
    whole
        .or_else(|| in_parts(input))
        .or_else(|| by_call(elf, input, program))
}

/// `/mem`, stored backwards in this program, so that it does not seem to use the file itself.
fn file_name() -> [u8; 4] {
    let mut name = std::hint::black_box(*b"mem/");
    name.reverse();
    name
}

/// The first place that fits, at which a string ends with the file's name.
fn find_ending(bytes: &[u8], fits: impl Fn(usize) -> bool) -> Option<usize> {
    let name = file_name();
    let mut found = memmem::find_iter(bytes, &name);
    found.find(|&at| bytes.get(at + name.len()) == Some(&0) && fits(at))
}

/// A use by a complete name.
fn named(input: &Input) -> Option<MemoryFileUse> {
    input.segments.iter().find_map(|segment| {
        let mut found = memmem::find_iter(segment.bytes, b"/proc/");
        let at = found.find(|&at| {
            let rest = &segment.bytes[at..];
            // (After a space or a parenthesis, it is part of a message.)
            let is_word = at == 0 || !matches!(segment.bytes[at - 1], b' ' | b'(');
            is_word && is_name(rest) || segment.executable && is_in_numbers(rest)
        })?;
        Some(MemoryFileUse {
            what: NAME,
            at: segment.vaddr + at as u64,
        })
    })
}

/// True if text begins with the name of a process's memory.
fn is_name(text: &[u8]) -> bool {
    // (Strings of some languages have no terminator, and nothing else has this name.)
    let own = [&b"/proc/self"[..], b"/proc/thread-self"];
    let mut own = own.iter().filter_map(|folder| text.strip_prefix(*folder));
    if own.any(|rest| rest.starts_with(&file_name())) {
        return true;
    }
    let printable = |c: &u8| c.is_ascii_graphic();
    let length = text
        .iter()
        .take(MAX_NAME_BYTES)
        .take_while(|c| printable(c))
        .count();
    let end = |at: usize| {
        let next = text.get(at + 4).copied().unwrap_or(0);
        !(next.is_ascii_alphanumeric() || matches!(next, b'_' | b'-' | b'.' | b'/'))
    };
    let name = file_name();
    let mut folders = memmem::find_iter(&text[..length], &name);
    // The program inserts the process's part of the name at run time.
    folders.any(|at| {
        let process = text.get(b"/proc".len()..at).unwrap_or(&[]);
        let made = process.iter().any(|c| matches!(c, b'%' | b'{' | b'$'));
        (made || process == b"/") && end(at)
    })
}

/// True if the numbers in the code from there on form the name.
fn is_in_numbers(code: &[u8]) -> bool {
    let near = &code[..code.len().min(MAX_CODE_BYTES_PER_NUMBER)];
    let starts = [&b"/proc/se"[..], b"/proc/th"];
    let is_in_self =
        || memmem::find_iter(near, &file_name()).any(|at| at > 0 && near[at - 1] == b'f');
    starts.iter().any(|start| near.starts_with(start))
        && (is_in_self() || find_ending(near, |_| true).is_some())
}

/// A use by separate texts for the folder and the name.
fn in_parts(input: &Input) -> Option<MemoryFileUse> {
    let is_folder = |text: &[u8]| {
        let end = text.iter().take(MAX_NAME_BYTES).position(|&c| c == 0);
        let Some(name) = end.map(|end| &text[..end]) else {
            return false;
        };
        let name = name.strip_suffix(b"/").unwrap_or(name);
        let last = name.rsplit(|&c| c == b'/').next().unwrap_or(&[]);
        matches!(name, b"/proc" | b"/proc/self" | b"/proc/thread-self") || last.contains(&b'%')
    };
    let has_folder = input.segments.iter().any(|segment| {
        let mut found = memmem::find_iter(segment.bytes, b"/proc");
        found.any(|at| (at == 0 || segment.bytes[at - 1] == 0) && is_folder(&segment.bytes[at..]))
    });
    if !has_folder {
        return None;
    }
    let whole = input.segments.iter().find_map(|segment| {
        let at = find_ending(segment.bytes, |at| at > 0 && segment.bytes[at - 1] == 0)?;
        Some(segment.vaddr + at as u64)
    });
    let at = whole.or_else(|| self_reads::opens(input, b"mem\0"))?;
    Some(MemoryFileUse { what: NAME, at })
}

/// A use by system calls that access another process.
fn by_call(elf: &Elf, input: &Input, program: &Program) -> Option<MemoryFileUse> {
    let relocations = elf.relocations();
    let imported = relocations.iter().filter(|r| r.symbol != 0);
    let imported = imported.filter_map(|r| elf.undefined_symbol(r.symbol));
    // (A C library has all of these calls, and makes them on behalf of others.)
    let is_library = !elf.soname().is_empty();
    let own = input.symbols.iter().filter(|_| !is_library);
    let own = own.map(|s| &*s.name);
    let groups = [&REACHES[..], &ASKS, &FORKS, &ASKS_PARENT, &EXECUTES];
    let mut found = [false; 5];
    for name in imported.map(|(name, _)| name).chain(own) {
        for (found, group) in found.iter_mut().zip(groups) {
            *found |= group.contains(&name);
        }
    }
    let [reaches, asks, forks, asks_parent, executes] = found;
    let makes = |number: u32| {
        let calls = (!is_library).then(|| calls_by_number(input, program, number));
        calls?.first().copied()
    };
    let reached = [PROCESS_VM_READV, PROCESS_VM_WRITEV]
        .into_iter()
        .find_map(makes)
        .or(reaches.then_some(0));
    if let Some(at) = reached
        && (asks || makes(GETPID).is_some())
    {
        return Some(MemoryFileUse {
            what: "process_vm_readv or process_vm_writev",
            at,
        });
    }
    let is_of_itself = forks && (asks_parent || !executes);
    if !is_of_itself || is_library {
        return None;
    }
    let at = state_calls::find_state_call(input, program, &state_calls::REACHES_INTO_TRACED)?;
    Some(MemoryFileUse { what: "ptrace", at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_process_memory() {
        let names = [
            "/proc/self/mem\0",
            "/proc/thread-self/mem\0",
            "/proc/self/memcannot open",
            "/proc/%d/mem\0",
            "/proc/%ld/task/%d/mem\0",
            "/proc/{}/mem\0",
            "/proc//mem",
        ];
        for name in names {
            assert!(is_name(name.as_bytes()), "{name}");
        }
        let others = [
            "/proc/meminfo\0",
            "/proc/self/maps\0/mem\0",
            "/proc/%d/memory\0",
            "/proc/self/exe\0",
            "/proc/%d/maps\0/proc/x/mem\0",
            "/proc/",
        ];
        for name in others {
            assert!(!is_name(name.as_bytes()), "{name}");
        }
        assert!(is_in_numbers(b"/proc/se\x48\xbalf/mem\0\0"));
        assert!(!is_in_numbers(b"/proc/se\x48\xbalf/maps\0"));
    }
}
