//! Call chains of samples: the callers of a sampled instruction.
//!
//! The kernel follows frame pointers and writes addresses, innermost first, with a marker before
//! each stretch that shows its origin (`PERF_CONTEXT_*`). If the processor keeps a stack of calls
//! in its branch records (`--call-graph=lbr`), that is the better source: it needs no frame
//! pointers. A sample may also have a copy of the user's stack (`--call-graph=dwarf`), which can be
//! unwound with the files. The chain is untrusted input. Its form is checked here, and its
//! addresses are checked when they are resolved to names.

use crate::header::Attr;
use crate::records::RecordBytes;
use crate::sample::Sample;
use crate::u64_at;
use mgz_perf::records::MAX_CALL_CHAIN;
use std::ops::Range;

// Words from this one on are markers (`PERF_CONTEXT_MAX`).
const FIRST_MARKER: u64 = -4095i64 as u64;
/// Marker: addresses of user code follow.
const USER: u64 = -512i64 as u64;
/// Bit of `branch_sample_type`: branch records are a stack of calls that have not returned.
const CALL_STACK: u64 = 1 << 11;
/// Bits of a sample's `misc` with the processor's mode, and their value for user code.
const MISC_CPUMODE: u16 = 7;
const MISC_USER: u16 = 2;
/// Words of a branch record: from, to, flags.
const BRANCH_WORDS: usize = 3;

/// The user part of a sample's call chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallChain {
    /// The next instruction, and then an address inside each call, from the inside out.
    pub addresses: Vec<u64>,
    /// The addresses are those of the calls' first bytes; else of their last.
    pub first_bytes: bool,
    /// The chain does not reach the thread's first function: there were too many addresses, or an
    /// invalid one.
    pub cut: bool,
    /// The last address is followed by a word that is not an address of user code.
    pub odd: bool,
}

impl CallChain {
    /// The chain of a sample; `None` if samples of its event have none. `body`: the bytes of the
    /// sample; `misc`: that of its record.
    pub fn of(attr: &Attr, sample: &Sample, body: &[u8], misc: u16) -> Option<CallChain> {
        let words = |range: &Range<usize>| {
            let word = |at: usize| u64_at(body, at).unwrap_or(0);
            range.clone().step_by(8).map(word)
        };
        let is_user = misc & MISC_CPUMODE == MISC_USER;
        let chain = sample.callchain.as_ref();
        let calls = sample.branches.as_ref();
        let calls = calls.filter(|_| attr.branch_sample_type & CALL_STACK != 0);
        if chain.is_none() && calls.is_none() {
            return None;
        }
        let followed = chain.map(|range| followed(words(range), is_user));
        let Some(calls) = calls.filter(|range| !range.is_empty()) else {
            return Some(followed.unwrap_or_default());
        };
        // If the kernel was sampled, the address in user code comes from the chain.
        let place = followed.as_ref().and_then(|f| f.addresses.first().copied());
        let Some(ip) = place.or(sample.ip.filter(|_| is_user)) else {
            return Some(followed.unwrap_or_default());
        };
        let mut found = CallChain {
            first_bytes: true,
            ..CallChain::default()
        };
        found.add(ip);
        for from in words(calls).step_by(BRANCH_WORDS) {
            if !found.add(from) {
                break;
            }
        }
        Some(found)
    }

    /// Adds an address; false if that ends the chain.
    fn add(&mut self, address: u64) -> bool {
        // 0, the caller of a thread's first frame, ends the chain.
        if address == 0 {
            return false;
        }
        let is_code = address >> 63 == 0;
        self.odd = !is_code;
        self.cut = !is_code || self.addresses.len() == MAX_CALL_CHAIN;
        if !self.cut {
            self.addresses.push(address);
        }
        !self.cut
    }
}

/// A copy of a thread's stack, and the registers for unwinding it.
#[derive(Clone, Debug)]
pub struct UserStack<'a> {
    /// Address of the next instruction.
    pub ip: u64,
    /// Stack pointer: address of the copy's first byte.
    pub sp: u64,
    /// The frame pointer; 0 if it is not known.
    pub bp: u64,
    /// The stack from the stack pointer on.
    pub bytes: RecordBytes<'a>,
}

impl<'a> UserStack<'a> {
    /// The copy of the stack in a sample, if it has one. `body`: the bytes of the sample.
    pub fn of(attr: &Attr, sample: &Sample, body: &RecordBytes<'a>) -> Option<UserStack<'a>> {
        // The kernel's numbers of x86 registers (`PERF_REG_X86_*`).
        const BP: u32 = 6;
        const SP: u32 = 7;
        const IP: u32 = 8;
        let registers = sample.registers.as_ref()?;
        let register = |number: u32| {
            let before = attr.regs_user & ((1 << number) - 1);
            let is_there = attr.regs_user >> number & 1 == 1;
            let at = registers.start + before.count_ones() as usize * 8;
            u64_at(body, at).filter(|_| is_there && at < registers.end)
        };
        let stack = sample.stack.clone().filter(|range| !range.is_empty())?;
        Some(UserStack {
            ip: register(IP)?,
            sp: register(SP)?,
            bp: register(BP).unwrap_or(0),
            bytes: match body {
                RecordBytes::File(body) => RecordBytes::File(body.get(stack)?),
                RecordBytes::Unpacked(body) => RecordBytes::Unpacked(body.get(stack)?.into()),
            },
        })
    }

    /// The stack's words.
    pub fn words(&self) -> Vec<u64> {
        let words = self.bytes.chunks_exact(8);
        words.filter_map(|word| u64_at(word, 0)).collect()
    }
}

/// The first stretch of user code in a chain. `is_user`: the chain begins with user code.
fn followed(words: impl Iterator<Item = u64>, is_user: bool) -> CallChain {
    let mut found = CallChain::default();
    let mut here = is_user;
    for word in words {
        if word >= FIRST_MARKER {
            if !found.addresses.is_empty() {
                break;
            }
            here = word == USER;
            continue;
        }
        if !here {
            continue;
        }
        // Callers are identified by their return addresses. (0 stays 0.)
        let address = match found.addresses.is_empty() {
            true => word,
            false => word.saturating_sub(1),
        };
        if !found.add(address) {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use mgz_perf::records::bits;

    const KERNEL: u64 = -128i64 as u64;
    const GUEST_USER: u64 = -2560i64 as u64;
    const DEFERRED: u64 = -640i64 as u64;
    const INNER_ADDRESS: u64 = 0xffff_ffff_8100_0000;

    fn body(list: &[u64]) -> Vec<u8> {
        list.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    /// The chain of a sample with only an address and a chain.
    fn chain(words: &[u64], misc: u16) -> CallChain {
        let attr = Attr {
            sample_type: bits::IP | bits::CALLCHAIN,
            ..Attr::default()
        };
        let body = body(&[&[0x400, words.len() as u64], words].concat());
        let sample = sample::sample(&attr, &body).unwrap();
        CallChain::of(&attr, &sample, &body, misc).unwrap()
    }

    #[test]
    fn only_the_users_part_counts_and_callers_are_the_calls_themselves() {
        let list = [
            KERNEL,
            INNER_ADDRESS,
            INNER_ADDRESS + 8,
            USER,
            0x1000,
            0x2005,
            0x3009,
        ];
        let found = chain(&list, 1);
        assert_eq!(found.addresses, [0x1000, 0x2004, 0x3008]);
        assert!(!found.cut && !found.odd);
        let guests = [USER, 0x1000, 0x2005, GUEST_USER, 0x5000, USER, 0x6000];
        assert_eq!(chain(&guests, 2).addresses, [0x1000, 0x2004]);
        // Without markers the chain belongs to the sampled mode.
        assert_eq!(chain(&[0x1000, 0x2005], 2).addresses, [0x1000, 0x2004]);
        assert_eq!(chain(&[INNER_ADDRESS, 0x2005], 1), CallChain::default());
    }

    #[test]
    fn chains_that_say_nothing_of_the_user_are_empty() {
        for list in [
            &[][..],
            &[USER],
            &[KERNEL, INNER_ADDRESS],
            &[KERNEL, USER, KERNEL],
            &[DEFERRED, 0x1234],
            &[u64::MAX; 9],
        ] {
            assert_eq!(chain(list, 2), CallChain::default(), "{list:x?}");
        }
    }

    #[test]
    fn what_cannot_be_the_users_ends_a_chain() {
        let found = chain(&[USER, 0x1000, 0x2005, INNER_ADDRESS, 0x4000], 2);
        assert_eq!(found.addresses, [0x1000, 0x2004]);
        assert!(found.cut && found.odd);
        // The kernel ends some chains with 0.
        let found = chain(&[USER, 0x1000, 0, 0x4000], 2);
        assert_eq!(found.addresses, [0x1000]);
        assert!(!found.cut && !found.odd);
        assert!(
            chain(&[USER, INNER_ADDRESS, 0x1000], 2)
                .addresses
                .is_empty()
        );
        let deep: Vec<u64> = std::iter::once(USER).chain(0x1000..0x1000 + 300).collect();
        let found = chain(&deep, 2);
        assert_eq!(
            (found.addresses.len(), found.cut, found.odd),
            (MAX_CALL_CHAIN, true, false)
        );
    }

    #[test]
    fn a_chain_longer_than_its_record_makes_the_sample_malformed() {
        let attr = Attr {
            sample_type: bits::IP | bits::CALLCHAIN,
            ..Attr::default()
        };
        for count in [3, 1 << 16, 1 << 61, u64::MAX] {
            assert_eq!(
                sample::sample(&attr, &body(&[0x400, count, USER, 0x1000])),
                None
            );
        }
    }

    #[test]
    fn stacks_of_calls_are_taken_where_the_processor_has_them() {
        let of = |branch_sample_type, branches: &[u64], chain: &[u64]| {
            let attr = Attr {
                sample_type: bits::IP | bits::CALLCHAIN | bits::BRANCH_STACK,
                branch_sample_type,
                ..Attr::default()
            };
            let words = [
                &[0x1000, chain.len() as u64][..],
                chain,
                &[branches.len() as u64 / 3],
                branches,
            ];
            let body = body(&words.concat());
            let sample = sample::sample(&attr, &body).unwrap();
            CallChain::of(&attr, &sample, &body, 2).unwrap().addresses
        };
        let branches = [0x2000, 0xf00, 0, 0x3000, 0x1f00, 0];
        let followed = [USER, 0x1000, 0x77];
        assert_eq!(
            of(CALL_STACK, &branches, &followed),
            [0x1000, 0x2000, 0x3000]
        );
        assert_eq!(of(CALL_STACK, &branches, &[]), [0x1000, 0x2000, 0x3000]);
        // Branches of another kind are no stack.
        assert_eq!(of(1 << 3, &branches, &followed), [0x1000, 0x76]);
        assert_eq!(of(CALL_STACK, &[], &followed), [0x1000, 0x76]);
    }
}
