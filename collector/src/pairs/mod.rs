//! Use–reuse pairs of `burst`: words accessed in windows, and the time of their next access.
//!
//! The runtime watches them (`collector/runtime/src/record/reuse_watch.rs`) and reports through the
//! log of stacks. The instruction before each hit is decoded here, while the program runs;
//! [`mod@write`] makes a table of it.

pub mod write;

use crate::paths::StackCopy;
use crate::watch::access::{AccessReader, Registers};
use crate::watch::trap_decode::Trap;
use mgz_abi::MAX_INSTRUCTION_BYTES;

/// One full window in this many is followed by a watch, since a hit costs half as much as a window.
/// Source: Chosen.
pub const WINDOWS_PER_WATCH: u64 = 4;
/// Bytes of a watched word.
const WORD: u64 = 8;
/// Words of the registers in the runtime's copy.
const REGISTERS: usize = 16;
/// Words of code in the copy, which end at the instruction pointer.
const CODE: usize = 2;
/// Maximum number of instructions that may have made an access: one for each length.
const MAX_CANDIDATES: usize = MAX_INSTRUCTION_BYTES;

/// End of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchEnd {
    /// Process.
    pub process: u32,
    /// Thread.
    pub thread: u32,
    /// CLOCK_MONOTONIC of the end.
    pub time: u64,
    /// Number of the first slot of the window that has accessed the word.
    pub first_slot: u64,
    /// The word's address.
    pub word: u64,
    /// CPU time of the thread since the window's end, nanoseconds.
    pub cpu_ns: u64,
    /// The access to the word. `None` if the watch was given up.
    pub access: Option<WordAccess>,
}

/// An access to a watched word: addresses of the instructions that may have loaded it, likely ones
/// first, then zeros. They may be in a clone. At most one of them is a real instruction; the bytes
/// alone do not show which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordAccess {
    loads: [u64; MAX_CANDIDATES],
}

impl WordAccess {
    /// Addresses of instructions that may have loaded the word.
    pub fn loads(&self) -> impl Iterator<Item = u64> {
        self.loads.into_iter().filter(|&ip| ip != 0)
    }
}

/// Collects the results of watches.
#[derive(Default)]
pub struct PairCollector {
    reader: AccessReader,
    list: Vec<WatchEnd>,
}

impl PairCollector {
    /// Takes the runtime's report of a watch.
    pub fn take(&mut self, copy: &StackCopy) {
        let access = (!copy.stack.is_empty()).then(|| self.access(copy));
        self.list.push(WatchEnd {
            process: copy.pid,
            thread: copy.tid,
            time: copy.time,
            first_slot: copy.first_slot,
            word: copy.sp,
            cpu_ns: copy.bp,
            access,
        });
    }

    /// All results.
    pub fn finish(self) -> Vec<WatchEnd> {
        self.list
    }

    /// The instruction that accessed the word, from the registers after it and the code before.
    fn access(&mut self, copy: &StackCopy) -> WordAccess {
        let unknown = WordAccess::default();
        let Some((registers, code)) = copy.stack.split_at_checked(REGISTERS) else {
            return unknown;
        };
        let Ok(general) = <[u64; REGISTERS]>::try_from(registers) else {
            return unknown;
        };
        let code: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
        if code.len() < CODE * 8 {
            return unknown;
        }
        let from = copy.ip.wrapping_sub(code.len() as u64);
        let mut read = |address: u64, into: &mut [u8]| {
            let at = address.wrapping_sub(from);
            let there = match at < code.len() as u64 {
                true => &code[at as usize..],
                false => &[],
            };
            let bytes = there.len().min(into.len());
            into[..bytes].copy_from_slice(&there[..bytes]);
            bytes
        };
        let trap = Trap {
            after: Registers {
                general,
                rip: copy.ip,
                ..Registers::default()
            },
            word: copy.sp,
            bytes: WORD,
            read: &mut read,
        };
        let mut access = unknown;
        (access.loads.iter_mut().zip(trap.loads(&mut self.reader))).for_each(|(to, ip)| *to = ip);
        access
    }
}

const _: () = assert!(CODE * 8 >= MAX_INSTRUCTION_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy as the runtime makes it. rbx holds the word's address after the instruction.
    fn copy(code: &[u8]) -> StackCopy {
        let (ip, word) = (0x40_1000, 0x7000_1230);
        let mut before = [0x90; CODE * 8];
        let at = before.len() - code.len();
        before[at..].copy_from_slice(code);
        let mut stack = vec![0; REGISTERS];
        stack[3] = word;
        stack.extend(before.chunks_exact(8).map(|b| {
            let mut word = [0; 8];
            word.copy_from_slice(b);
            u64::from_le_bytes(word)
        }));
        StackCopy {
            ip,
            sp: word,
            bp: 5000,
            stack,
            ..StackCopy::default()
        }
    }

    fn access(copy: &StackCopy) -> Option<WordAccess> {
        let mut collector = PairCollector::default();
        collector.take(copy);
        collector.finish()[0].access
    }

    fn loads(code: &[u8]) -> Vec<u64> {
        access(&copy(code)).unwrap().loads().collect()
    }

    #[test]
    fn loads_are_told_from_stores() {
        // mov rax, [rbx]
        assert_eq!(loads(&[0x48, 0x8b, 0x03])[..1], [0x40_0ffd]);
        // mov [rbx], rax
        assert_eq!(loads(&[0x48, 0x89, 0x03]), Vec::<u64>::new());
        // add [rbx], rax
        assert_eq!(loads(&[0x48, 0x01, 0x03])[..1], [0x40_0ffd]);
    }

    /// The last byte of `and rdx, rsi` looks like a prefix of `add r8, [rbx]`, which is also valid
    /// without its own prefix.
    #[test]
    fn prefixes_may_belong_to_what_comes_before() {
        let found = loads(&[0x48, 0x21, 0xf2, 0x4c, 0x03, 0x03]);
        assert!(found.contains(&0x40_0ffd), "{found:x?}");
    }

    /// mov rbx, [rbx]: the address is lost.
    #[test]
    fn a_load_may_have_changed_its_address() {
        let found = loads(&[0x48, 0x21, 0xf2, 0x48, 0x8b, 0x1b]);
        assert!(found.contains(&0x40_0ffd), "{found:x?}");
    }

    #[test]
    fn what_is_not_found_is_not_guessed() {
        // nop
        assert_eq!(loads(&[0x90]), Vec::<u64>::new());
        // The program may have overwritten the log.
        let mut short = copy(&[0x90]);
        short.stack.truncate(3);
        assert_eq!(access(&short), Some(WordAccess::default()));
        short.stack.clear();
        assert_eq!(access(&short), None);
    }
}
