//! Finds the instruction that has just accessed a watched word, and its kind of access. A
//! watchpoint traps after the instruction, and reports only the address there.
//!
//! Processors cannot watch reads alone, so a hit may be a load, a store, both, or an implicit
//! access (`push`, `ret`). x86 code cannot be decoded backwards with certainty. So all instructions
//! are candidates that may have led here and, by the registers after them, accessed the word: those
//! that end here, calls and jumps to here, a return, or an unfinished repeated instruction. If the
//! instruction has changed its own address registers (`mov rax, [rax]`), its address cannot be
//! checked. It counts only if no checked candidate is found.

use crate::watch::access::{AccessReader, MemoryAccess, Registers, accesses};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register,
};
use mgz_abi::MAX_INSTRUCTION_BYTES;
use mgz_abi::shared_memory::PAGE_SIZE;

/// Distance that a repeated string instruction may have run ahead when the trap comes, bytes. Fast
/// copies proceed by cache lines.
const MAX_RUN_AHEAD_BYTES: u64 = 128;

/// The access to a word by an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touch {
    /// True if the word was loaded.
    pub read: bool,
    /// True if the word was stored.
    pub written: bool,
    /// Number of stores by the instruction, to the word or elsewhere; they come after its loads.
    pub stores: u64,
    /// The instruction; 0 if only its target is known.
    pub ip: u64,
}

impl Touch {
    fn of(ip: u64, all: &[MemoryAccess], hits: impl Fn(&MemoryAccess) -> bool) -> Option<Touch> {
        let touching: Vec<&MemoryAccess> = all.iter().filter(|a| hits(a)).collect();
        let named = |a: &&&MemoryAccess| !a.implicit;
        (!touching.is_empty()).then(|| Touch {
            read: touching.iter().filter(named).any(|a| a.read),
            written: touching.iter().filter(named).any(|a| a.written),
            stores: all.iter().filter(|a| !a.implicit && a.written).count() as u64,
            ip,
        })
    }

    /// True if both have the same kind of access to the word.
    fn agrees(&self, other: &Touch) -> bool {
        (self.read, self.written) == (other.read, other.written)
    }
}

/// The state at a trap.
pub struct Trap<'a> {
    /// Registers after the instruction.
    pub after: Registers,
    /// The watched word's address.
    pub word: u64,
    /// Bytes of the word.
    pub bytes: u64,
    /// Reads memory; returns the number of bytes read.
    pub read: &'a mut dyn FnMut(u64, &mut [u8]) -> usize,
}

impl Trap<'_> {
    /// The access to the word. `None` if no instruction could have made it.
    pub fn touch(mut self, reader: &mut AccessReader) -> Option<Touch> {
        let info = &mut reader.info;
        let ip = self.after.rip;
        let rsp = self.after.general[4];
        // A return has just popped its target.
        if self.near(rsp.wrapping_sub(8), 8) && self.value(rsp.wrapping_sub(8)) == Some(ip) {
            return Some(Touch::default());
        }
        let (mut found, unchecked) = self.ending_at(info, ip, &[FlowControl::Next]);
        // A call has just pushed its return address.
        if let Some(back) = self.value(rsp) {
            let calls = [FlowControl::Call, FlowControl::IndirectCall];
            found.extend(self.ending_at(info, back, &calls).0);
        }
        found.extend(self.repeated(info, ip));
        // The longest candidate first: shorter ones mostly are the same instruction without
        // prefixes.
        if let Some(&first) = found.first() {
            if found.iter().all(|t| t.agrees(&first)) {
                return Some(first);
            }
            return found
                .into_iter()
                .find(|t| self.leads_here(t.ip, ip))
                .or(Some(first));
        }
        // A jump through memory has read the current instruction pointer.
        if self.word.is_multiple_of(8) && self.value(self.word) == Some(ip) {
            return Some(Touch {
                read: true,
                ..Touch::default()
            });
        }
        unchecked.first().copied()
    }

    /// Addresses of instructions that may have led here and loaded the word, likely ones first. At
    /// most one is a real instruction. Bytes before it may look like prefixes, and it may be valid
    /// without some of its own prefixes.
    pub fn loads(mut self, reader: &mut AccessReader) -> Vec<u64> {
        let info = &mut reader.info;
        let ip = self.after.rip;
        let (mut found, unchecked) = self.ending_at(info, ip, &[FlowControl::Next]);
        found.extend(self.repeated(info, ip));
        found.extend(unchecked);
        found.iter().filter(|t| t.read).map(|t| t.ip).collect()
    }

    fn near(&self, address: u64, bytes: u64) -> bool {
        MemoryAccess {
            address,
            size: bytes,
            read: false,
            written: false,
            implicit: false,
        }
        .touches(self.word, self.bytes)
    }

    fn value(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        ((self.read)(address, &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
    }

    /// Instructions that end at an address: those that accessed the word, and those that cannot be
    /// checked; longest first.
    fn ending_at(
        &mut self,
        info: &mut InstructionInfoFactory,
        end: u64,
        flows: &[FlowControl],
    ) -> (Vec<Touch>, Vec<Touch>) {
        let mut code = [0; MAX_INSTRUCTION_BYTES];
        let mut first = 0;
        let (mut out, mut unchecked) = (Vec::new(), Vec::new());
        // The page before may not be mapped.
        if (self.read)(end.wrapping_sub(MAX_INSTRUCTION_BYTES as u64), &mut code)
            < MAX_INSTRUCTION_BYTES
        {
            first = MAX_INSTRUCTION_BYTES
                - (end % PAGE_SIZE as u64).min(MAX_INSTRUCTION_BYTES as u64) as usize;
            if (self.read)(
                end.wrapping_sub((MAX_INSTRUCTION_BYTES - first) as u64),
                &mut code[first..],
            ) < MAX_INSTRUCTION_BYTES - first
            {
                return (out, unchecked);
            }
        }
        for from in first..MAX_INSTRUCTION_BYTES {
            let start = end.wrapping_sub((MAX_INSTRUCTION_BYTES - from) as u64);
            let insn = Decoder::with_ip(64, &code[from..], start, DecoderOptions::NONE).decode();
            if insn.is_invalid()
                || insn.len() != MAX_INSTRUCTION_BYTES - from
                || !flows.contains(&insn.flow_control())
            {
                continue;
            }
            // A direct call counts only if its target is here.
            if insn.flow_control() == FlowControl::Call
                && insn.near_branch_target() != self.after.rip
            {
                continue;
            }
            let (all, sure) = self.accesses_before(info, &insn, start);
            if !sure {
                unchecked.extend(Touch::of(start, &all, |_| true));
            } else if let Some(touch) = Touch::of(start, &all, |a| a.touches(self.word, self.bytes))
            {
                out.push(touch);
            }
        }
        (out, unchecked)
    }

    /// Accesses of an instruction that has run, from the registers after it, and true if the
    /// address registers are unchanged by it.
    fn accesses_before(
        &self,
        info: &mut InstructionInfoFactory,
        insn: &Instruction,
        start: u64,
    ) -> (Vec<MemoryAccess>, bool) {
        let mut before = Registers {
            rip: start,
            ..self.after
        };
        let used = info.info(insn);
        let written = |register: Register| {
            used.used_registers().iter().any(|r| {
                r.register().full_register() == register.full_register()
                    && matches!(
                        r.access(),
                        OpAccess::Write
                            | OpAccess::ReadWrite
                            | OpAccess::CondWrite
                            | OpAccess::ReadCondWrite
                    )
            })
        };
        let mut sure = true;
        for memory in used.used_memory() {
            for register in [memory.base(), memory.index()] {
                let stack =
                    register.full_register() == Register::RSP && insn.is_stack_instruction();
                sure &= register == Register::None || stack || !written(register);
                sure &= !register.is_vector_register();
            }
        }
        if insn.is_stack_instruction() && insn.mnemonic() != iced_x86::Mnemonic::Leave {
            before.general[4] =
                self.after.general[4].wrapping_sub(insn.stack_pointer_increment() as u64);
        } else if insn.mnemonic() == iced_x86::Mnemonic::Leave {
            // It read the word below its new stack pointer.
            let address = self.after.general[4].wrapping_sub(8);
            return (
                vec![MemoryAccess {
                    address,
                    size: 8,
                    read: true,
                    written: false,
                    implicit: true,
                }],
                true,
            );
        }
        if insn.is_string_instruction() {
            return (self.of_string(insn), true);
        }
        let mut all = accesses(info, insn, &before);
        if all.is_empty() && !sure {
            // The addresses of gathers are in registers that are unknown here.
            all.push(MemoryAccess {
                address: 0,
                size: 0,
                read: true,
                written: false,
                implicit: false,
            });
        }
        (all, sure)
    }

    /// Ranges that a string instruction may have accessed.
    fn of_string(&self, insn: &Instruction) -> Vec<MemoryAccess> {
        let size = insn.memory_size().size() as u64;
        let repeated = insn.has_rep_prefix() || insn.has_repne_prefix();
        let back = if repeated { MAX_RUN_AHEAD_BYTES } else { size };
        // The direction is unknown, so both sides count.
        let around = |register: usize, read: bool, written: bool| MemoryAccess {
            address: self.after.general[register].wrapping_sub(back),
            size: 2 * back + size,
            read,
            written,
            implicit: false,
        };
        use iced_x86::Mnemonic as M;
        match insn.mnemonic() {
            M::Movsb | M::Movsw | M::Movsd | M::Movsq => {
                vec![around(6, true, false), around(7, false, true)]
            }
            M::Stosb | M::Stosw | M::Stosd | M::Stosq => vec![around(7, false, true)],
            M::Lodsb | M::Lodsw | M::Lodsd | M::Lodsq => vec![around(6, true, false)],
            M::Scasb | M::Scasw | M::Scasd | M::Scasq => vec![around(7, true, false)],
            M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq => {
                vec![around(6, true, false), around(7, true, false)]
            }
            _ => Vec::new(),
        }
    }

    /// An unfinished repeated string instruction at this address.
    fn repeated(&mut self, info: &mut InstructionInfoFactory, ip: u64) -> Option<Touch> {
        let mut code = [0; MAX_INSTRUCTION_BYTES];
        let got = (self.read)(ip, &mut code);
        let insn = Decoder::with_ip(64, &code[..got], ip, DecoderOptions::NONE).decode();
        if insn.is_invalid()
            || !insn.is_string_instruction()
            || !(insn.has_rep_prefix() || insn.has_repne_prefix())
        {
            return None;
        }
        let (all, _) = self.accesses_before(info, &insn, ip);
        Touch::of(ip, &all, |a| a.touches(self.word, self.bytes))
    }

    /// True if decoding from some point before `start` reaches `start` and then `end`. Decoding
    /// from most points soon aligns with the real instructions.
    fn leads_here(&mut self, start: u64, end: u64) -> bool {
        const DECODED_BYTES_BEFORE: u64 = 96;
        let mut code = [0; DECODED_BYTES_BEFORE as usize];
        let from = end.wrapping_sub(DECODED_BYTES_BEFORE);
        if (self.read)(from, &mut code) < code.len() {
            return false;
        }
        let (mut met, mut missed) = (0, 0);
        for skip in 0..48 {
            let mut at = skip;
            while at < code.len() && from + (at as u64) < start {
                let insn =
                    Decoder::with_ip(64, &code[at..], from + at as u64, DecoderOptions::NONE)
                        .decode();
                at += if insn.is_invalid() { 1 } else { insn.len() };
            }
            if from + at as u64 == start {
                met += 1
            } else {
                missed += 1
            }
        }
        met > missed
    }
}
