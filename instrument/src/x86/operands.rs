//! Memory operands: the loads and stores of an instruction, their sizes and their addresses.
//!
//! Implicit stack accesses (`push`, `pop`, `call`, `ret`, `leave`) are not listed. Cache hints and
//! address computations do not count as accesses.

use crate::x86::insn::Insn;
use crate::x86::operand_info::Operands;
use crate::x86::regs::{Gpr, RAX, RBX, RCX, RDI, RSI, RSP, gpr, gpr64};
use iced_x86::{
    Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess, OpKind, Register,
};
use mgz_annotations_schema::sidecar::{REG_NONE, REG_RIP};
use smallvec::SmallVec;
use std::ops::{Index, Range};

/// Segment of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessSegment {
    /// Base 0.
    Flat,
    /// fs override.
    Fs,
    /// gs override.
    Gs,
}

/// An address computed from registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectiveAddress {
    /// Segment override (ds, es, ss and cs have base 0 in 64-bit mode).
    pub segment: AccessSegment,
    /// Base register.
    pub base: Option<Gpr>,
    /// Index register.
    pub index: Option<Gpr>,
    /// Factor of the index.
    pub scale: u8,
    /// Displacement; the whole address if there is neither base nor index (RIP-relative operands
    /// are resolved).
    pub disp: i64,
    /// True if the address is truncated to 32 bits.
    pub addr32: bool,
}

impl EffectiveAddress {
    /// `[register]`.
    pub fn at(register: Gpr) -> EffectiveAddress {
        EffectiveAddress {
            segment: AccessSegment::Flat,
            base: Some(register),
            index: None,
            scale: 1,
            disp: 0,
            addr32: false,
        }
    }
}

impl EffectiveAddress {
    /// True if it is at a fixed address or in the frame, independent of registers.
    pub fn is_constant(&self) -> bool {
        self.index.is_none()
            && match self.base {
                None => self.segment != AccessSegment::Gs,
                base => base == Some(RSP),
            }
    }
}

/// Form of an access's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One address.
    Plain(EffectiveAddress),
    /// String instruction with a `rep` prefix. `until`: it may stop early.
    Repeated {
        /// rsi or rdi.
        pointer: Gpr,
        /// Register with the number of elements.
        count: Gpr,
        /// `repe`/`repne` of a comparing instruction.
        until: bool,
    },
    /// One step of a string instruction.
    Step {
        /// rsi or rdi.
        pointer: Gpr,
    },
    /// Vector index.
    Gather {
        /// Address without the index.
        place: EffectiveAddress,
        /// Number of the index vector register.
        index: u8,
    },
    /// Bit string with a register offset.
    Bits {
        /// Address of the operand.
        place: EffectiveAddress,
        /// Register with the bit offset.
        offset: Gpr,
    },
    /// `xlat`.
    Table,
    /// An unknown form.
    Unknown,
}

/// One access of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandAccess {
    /// True if it reads memory.
    pub read: bool,
    /// True if it writes memory.
    pub write: bool,
    /// Bytes (per element for repeated strings and gathers), 0 if unknown.
    pub size: u32,
    /// Address.
    pub form: Form,
}

impl OperandAccess {
    /// True if its class is requested and depends on register values; see
    /// [`crate::analyze::dataflow`]. `stores`: classes of stores are requested, too.
    pub fn asks(&self, stores: bool) -> bool {
        let depends = match &self.form {
            Form::Plain(place) => !place.is_constant(),
            Form::Step { .. } => true,
            Form::Repeated { .. }
            | Form::Gather { .. }
            | Form::Bits { .. }
            | Form::Table
            | Form::Unknown => false,
        };
        depends && (self.read || stores)
    }
}

/// The accesses of one instruction, at most two, in the processor's order; three for a call that
/// copies ([`crate::plan::copies`]).
pub type Accesses = [OperandAccess];

/// The accesses of each instruction. Most instructions have none, so there is no list per
/// instruction.
#[derive(Clone, Debug)]
pub struct AccessList {
    /// Per instruction: start of its accesses in `all`, times four, plus their number. Zero: it has
    /// none.
    of: Vec<u32>,
    all: Vec<OperandAccess>,
    /// Indices of the instructions that have accesses.
    insns: Vec<u32>,
}

impl AccessList {
    /// An empty list for this number of instructions.
    pub fn none(insns: usize) -> AccessList {
        AccessList {
            of: vec![0; insns],
            all: Vec::with_capacity(insns / 3),
            insns: Vec::with_capacity(insns / 3),
        }
    }

    /// Sets the only access of an instruction that comes after all others with accesses.
    #[inline]
    pub fn set(&mut self, insn: usize, access: OperandAccess) {
        self.of[insn] = (self.all.len() << 2 | 1) as u32;
        self.all.push(access);
        self.insns.push(insn as u32);
    }

    /// Sets the accesses of an instruction that comes after all others with accesses.
    pub fn set_all(&mut self, insn: usize, list: &Accesses) {
        if !list.is_empty() {
            self.of[insn] = (self.all.len() << 2 | list.len()) as u32;
            self.all.extend_from_slice(list);
            self.insns.push(insn as u32);
        }
    }

    /// Adds one access to each of some instructions that have none.
    pub fn add(&mut self, more: impl Iterator<Item = (usize, OperandAccess)>) {
        let before = self.insns.len();
        for (insn, access) in more {
            debug_assert!(self[insn].is_empty());
            self.set(insn, access);
        }
        if self.insns.len() > before {
            self.insns.sort_unstable();
        }
    }

    /// Indices of the instructions that have accesses, in order.
    pub fn insns(&self) -> &[u32] {
        &self.insns
    }

    /// Accesses of a range of instructions, with the number of each instruction that has any.
    pub fn within(&self, insns: Range<usize>) -> impl Iterator<Item = (usize, &Accesses)> {
        let first = self.insns.partition_point(|&i| (i as usize) < insns.start);
        self.insns[first..]
            .iter()
            .map(|&i| i as usize)
            .take_while(move |&i| i < insns.end)
            .map(|i| (i, &self[i]))
    }

    /// All accesses.
    pub fn iter(&self) -> impl Iterator<Item = &OperandAccess> {
        self.all.iter()
    }
}

impl Index<usize> for AccessList {
    type Output = Accesses;

    #[inline]
    fn index(&self, insn: usize) -> &Accesses {
        match self.of[insn] as usize {
            0 => &[],
            of => &self.all[of >> 2..(of >> 2) + (of & 3)],
        }
    }
}

impl FromIterator<SmallVec<[OperandAccess; 2]>> for AccessList {
    fn from_iter<T: IntoIterator<Item = SmallVec<[OperandAccess; 2]>>>(lists: T) -> AccessList {
        let mut all = AccessList::none(0);
        for (i, list) in lists.into_iter().enumerate() {
            all.of.push(0);
            all.set_all(i, &list);
        }
        all
    }
}

/// Lists the explicit accesses of an instruction.
pub fn accesses(inst: &Instruction, info: &impl Operands) -> SmallVec<[OperandAccess; 2]> {
    let mut list = SmallVec::new();
    if !inst.op_kinds().any(is_memory) || is_hint(inst.mnemonic()) {
        return list;
    }
    for op in 0..inst.op_count() {
        let kind = inst.op_kind(op);
        if !is_memory(kind) {
            continue;
        }
        let Some((read, write)) = directions(info.op_access(op)) else {
            continue;
        };
        let form = match kind {
            OpKind::Memory => memory_form(inst),
            OpKind::MemorySegRSI => string_form(inst, RSI),
            OpKind::MemoryESRDI => string_form(inst, RDI),
            OpKind::MemorySegRDI => Form::Plain(EffectiveAddress {
                segment: segment(inst),
                ..EffectiveAddress::at(RDI)
            }),
            OpKind::MemorySegSI
            | OpKind::MemorySegESI
            | OpKind::MemoryESDI
            | OpKind::MemoryESEDI => Form::Unknown,
            OpKind::MemorySegDI | OpKind::MemorySegEDI => Form::Unknown,
            _ => continue,
        };
        list.push(OperandAccess {
            read,
            write,
            size: size_of(inst),
            form,
        });
    }
    // The destination operand comes first, but the processor reads its sources first.
    if let [first, second] = &mut list[..]
        && !first.read
        && second.read
    {
        std::mem::swap(first, second);
    }
    list
}

/// The access of an instruction that is plain for [`crate::x86::effects`].
#[inline]
pub fn plain_access(inst: &Instruction, operands: &impl Operands) -> Option<OperandAccess> {
    let op = (0..3).find(|&op| inst.op_kind(op) == OpKind::Memory)?;
    let (read, write) = directions(operands.op_access(op))?;
    Some(OperandAccess {
        read,
        write,
        size: size_of(inst),
        form: Form::Plain(plain_place(inst)),
    })
}

/// True for reading and true for writing the operand. `None` if neither holds.
#[inline]
fn directions(access: OpAccess) -> Option<(bool, bool)> {
    match access {
        OpAccess::Read | OpAccess::CondRead => Some((true, false)),
        OpAccess::Write | OpAccess::CondWrite => Some((false, true)),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Some((true, true)),
        OpAccess::None | OpAccess::NoMemAccess => None,
    }
}

fn is_memory(kind: OpKind) -> bool {
    use OpKind::{
        Memory, MemoryESDI, MemoryESEDI, MemoryESRDI, MemorySegDI, MemorySegEDI, MemorySegESI,
        MemorySegRDI, MemorySegRSI, MemorySegSI,
    };
    matches!(
        kind,
        Memory
            | MemorySegSI
            | MemorySegESI
            | MemorySegRSI
            | MemorySegDI
            | MemorySegEDI
            | MemorySegRDI
            | MemoryESDI
            | MemoryESEDI
            | MemoryESRDI
    )
}

/// True if it accesses no data: prefetches, cache line control, monitors.
fn is_hint(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Cldemote, Clflush, Clflushopt, Clwb, Invlpg, Lea, Monitor, Monitorx, Nop, Prefetch,
        Prefetchit0, Prefetchit1, Prefetchnta, Prefetcht0, Prefetcht1, Prefetcht2, Prefetchw,
        Prefetchwt1,
    };
    matches!(
        mnemonic,
        Lea | Nop
            | Clflush
            | Clflushopt
            | Clwb
            | Cldemote
            | Invlpg
            | Monitor
            | Monitorx
            | Prefetch
            | Prefetchnta
            | Prefetcht0
            | Prefetcht1
            | Prefetcht2
            | Prefetchw
            | Prefetchwt1
            | Prefetchit0
            | Prefetchit1
    )
}

fn size_of(inst: &Instruction) -> u32 {
    let size = inst.memory_size();
    if size == MemorySize::Unknown {
        0
    } else {
        size.size() as u32
    }
}

fn segment(inst: &Instruction) -> AccessSegment {
    match inst.segment_prefix() {
        Register::FS => AccessSegment::Fs,
        Register::GS => AccessSegment::Gs,
        _ => AccessSegment::Flat,
    }
}

/// The instruction's memory operand as an address; `None` for vector indices.
pub fn place_of(inst: &Instruction) -> Option<EffectiveAddress> {
    let index = inst.memory_index();
    (index == Register::None || index.is_gpr() || inst.is_ip_rel_memory_operand())
        .then(|| plain_place(inst))
}

/// A memory operand as an address. Its index, if any, is a general purpose register.
#[inline]
fn plain_place(inst: &Instruction) -> EffectiveAddress {
    let segment = segment(inst);
    let (base, index) = (inst.memory_base(), inst.memory_index());
    if inst.is_ip_rel_memory_operand() {
        let disp = inst.ip_rel_memory_address() as i64;
        return EffectiveAddress {
            segment,
            base: None,
            index: None,
            scale: 1,
            disp,
            addr32: base == Register::EIP,
        };
    }
    let addr32 = base.is_gpr32()
        || index.is_gpr32()
        || (base == Register::None && index == Register::None && inst.memory_displ_size() == 4);
    EffectiveAddress {
        segment,
        base: gpr(base),
        index: gpr(index),
        scale: inst.memory_index_scale() as u8,
        disp: if addr32 {
            i64::from(inst.memory_displacement64() as i32)
        } else {
            inst.memory_displacement64() as i64
        },
        addr32,
    }
}

fn memory_form(inst: &Instruction) -> Form {
    if inst.mnemonic() == Mnemonic::Xlatb {
        let plain = inst.memory_base() == Register::RBX && segment(inst) == AccessSegment::Flat;
        return if plain { Form::Table } else { Form::Unknown };
    }
    if inst.is_vsib() {
        let base = if inst.memory_base() == Register::None {
            None
        } else {
            gpr64(inst.memory_base())
        };
        if base.is_none() && inst.memory_base() != Register::None {
            return Form::Unknown;
        }
        let disp = inst.memory_displacement64() as i64;
        let place = EffectiveAddress {
            segment: segment(inst),
            base,
            index: None,
            scale: inst.memory_index_scale() as u8,
            disp,
            addr32: false,
        };
        return Form::Gather {
            place,
            index: inst.memory_index().number() as u8,
        };
    }
    let Some(place) = place_of(inst) else {
        return Form::Unknown;
    };
    match inst.mnemonic() {
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
            if inst.op1_kind() == OpKind::Register =>
        {
            match gpr(inst.op1_register()) {
                Some(offset) => Form::Bits { place, offset },
                None => Form::Unknown,
            }
        }
        // The stride is in a register, or the size depends on a configuration.
        Mnemonic::Tileloadd
        | Mnemonic::Tileloaddt1
        | Mnemonic::Tilestored
        | Mnemonic::Bndldx
        | Mnemonic::Bndstx => Form::Unknown,
        // The address uses rsp after the increment.
        Mnemonic::Pop if place.base == Some(RSP) => Form::Plain(EffectiveAddress {
            disp: place.disp.wrapping_add(i64::from(size_of(inst))),
            ..place
        }),
        _ => Form::Plain(place),
    }
}

fn string_form(inst: &Instruction, pointer: Gpr) -> Form {
    if segment(inst) != AccessSegment::Flat && pointer == RSI {
        return Form::Unknown;
    }
    let repeated = inst.has_rep_prefix() || inst.has_repne_prefix();
    let compares = matches!(
        inst.mnemonic(),
        Mnemonic::Cmpsb
            | Mnemonic::Cmpsw
            | Mnemonic::Cmpsd
            | Mnemonic::Cmpsq
            | Mnemonic::Scasb
            | Mnemonic::Scasw
            | Mnemonic::Scasd
            | Mnemonic::Scasq
    );
    match inst.mnemonic() {
        Mnemonic::Insb
        | Mnemonic::Insw
        | Mnemonic::Insd
        | Mnemonic::Outsb
        | Mnemonic::Outsw
        | Mnemonic::Outsd => Form::Unknown,
        _ if repeated => Form::Repeated {
            pointer,
            count: COUNT_REGISTER,
            until: compares,
        },
        _ => Form::Step { pointer },
    }
}

/// True if the instruction is a string instruction with a `rep` prefix.
pub fn is_repeated_string(inst: &Instruction) -> bool {
    (inst.has_rep_prefix() || inst.has_repne_prefix()) && inst.is_string_instruction()
}

/// The register that may hold the load's own address: a 32- or 64-bit general purpose register that
/// the instruction overwrites as a whole and does not use otherwise, with the memory operand as a
/// source. PT flavour only, since a fault would show the address in it.
pub fn own_destination(inst: &Instruction, info: &impl Operands) -> Option<Gpr> {
    let register = inst.op0_register();
    let suits = inst.op_count() >= 2
        && inst.op0_kind() == OpKind::Register
        && (inst.op0_register().is_gpr32() || inst.op0_register().is_gpr64())
        && register.full_register() != Register::RSP
        && info.op_access(0) == OpAccess::Write
        && !matches!(
            inst.mnemonic(),
            Mnemonic::Bsf | Mnemonic::Bsr | Mnemonic::Tzcnt | Mnemonic::Lzcnt
        )
        && (1..inst.op_count()).any(|o| inst.op_kind(o) == OpKind::Memory)
        && (1..inst.op_count()).all(|o| {
            inst.op_kind(o) != OpKind::Register
                || inst.op_register(o).full_register() != register.full_register()
        });
    let r = gpr(register)?;
    // Implicit sources (mulx reads rdx) count as uses unless they are the address registers.
    let implicit = matches!(
        inst.mnemonic(),
        Mnemonic::Mulx | Mnemonic::Adcx | Mnemonic::Adox
    );
    (suits && !implicit).then_some(r)
}

/// Operand literals for the sidecar: base, index, scale, displacement, segment. `nth` counts the
/// sites of the same kind (loads, or stores) that one instruction has, from 0.
pub fn literals(insn: &Insn, store: bool, nth: usize) -> (u8, u8, u8, i64, u8) {
    let mut factory = InstructionInfoFactory::new();
    let list = accesses(&insn.inst, factory.info(&insn.inst));
    let found = list
        .iter()
        .filter(|a| if store { a.write } else { a.read })
        .nth(nth)
        .copied();
    let inst = &insn.inst;
    let segment = match segment(inst) {
        AccessSegment::Flat => 0,
        AccessSegment::Fs => 1,
        AccessSegment::Gs => 2,
    };
    let number = |r: Option<Gpr>| r.map_or(REG_NONE, |r| r.0);
    match found.map(|a| a.form) {
        Some(Form::Plain(p) | Form::Bits { place: p, .. })
            if inst.op_kinds().any(|k| k == OpKind::Memory) =>
        {
            if inst.is_ip_rel_memory_operand() {
                return (REG_RIP, REG_NONE, 1, p.disp, segment);
            }
            (
                number(p.base),
                number(p.index),
                p.scale,
                place_of(inst).map_or(p.disp, |q| q.disp),
                segment,
            )
        }
        Some(Form::Plain(p) | Form::Bits { place: p, .. }) => {
            (number(p.base), number(p.index), p.scale, p.disp, segment)
        }
        Some(Form::Gather { place, index }) => {
            (number(place.base), index, place.scale, place.disp, segment)
        }
        Some(Form::Repeated { pointer, .. } | Form::Step { pointer }) => {
            (pointer.0, REG_NONE, 1, 0, segment)
        }
        Some(Form::Table) => (RBX.0, RAX.0, 1, 0, segment),
        Some(Form::Unknown) | None => (REG_NONE, REG_NONE, 1, 0, segment),
    }
}

/// Count register of repeated string instructions.
pub const COUNT_REGISTER: Gpr = RCX;

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn of(bytes: &[u8]) -> Vec<OperandAccess> {
        let inst = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
        assert!(!inst.is_invalid());
        accesses(&inst, InstructionInfoFactory::new().info(&inst))
            .iter()
            .copied()
            .collect()
    }

    fn destination(bytes: &[u8]) -> Option<Gpr> {
        let inst = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
        own_destination(&inst, InstructionInfoFactory::new().info(&inst))
    }

    fn sizes(bytes: &[u8]) -> Vec<(bool, bool, u32)> {
        of(bytes)
            .iter()
            .map(|a| (a.read, a.write, a.size))
            .collect()
    }

    #[test]
    fn loads_stores_and_both() {
        assert_eq!(sizes(&[0x8b, 0x07]), [(true, false, 4)]); // mov eax,[rdi]
        assert_eq!(sizes(&[0x89, 0x07]), [(false, true, 4)]); // mov [rdi],eax
        assert_eq!(sizes(&[0x01, 0x07]), [(true, true, 4)]); // add [rdi],eax
        assert_eq!(sizes(&[0x39, 0x07]), [(true, false, 4)]); // cmp [rdi],eax
        assert_eq!(sizes(&[0xff, 0x37]), [(true, false, 8)]); // push [rdi]
        assert_eq!(sizes(&[0xff, 0x17]), [(true, false, 8)]); // call [rdi]
        assert_eq!(sizes(&[0x8f, 0x07]), [(false, true, 8)]); // pop [rdi]
        assert_eq!(sizes(&[0xdd, 0x07]), [(true, false, 8)]); // fld qword [rdi]
        assert_eq!(sizes(&[0xdb, 0x2f]), [(true, false, 10)]); // fld tbyte [rdi]
        assert_eq!(sizes(&[0x0f, 0xae, 0x0f]), [(true, false, 512)]); // fxrstor [rdi]
    }

    #[test]
    fn what_touches_no_data_has_no_access() {
        assert_eq!(sizes(&[0x48, 0x8d, 0x07]), []); // lea rax,[rdi]
        assert_eq!(sizes(&[0x0f, 0x18, 0x0f]), []); // prefetcht0 [rdi]
        assert_eq!(sizes(&[0x0f, 0x0d, 0x0f]), []); // prefetchw [rdi]
        assert_eq!(sizes(&[0x0f, 0x1f, 0x00]), []); // nop [rax]
        assert_eq!(sizes(&[0x0f, 0xae, 0x3f]), []); // clflush [rdi]
        assert_eq!(sizes(&[0x58]), []); // pop rax
        assert_eq!(sizes(&[0x50]), []); // push rax
        assert_eq!(sizes(&[0xc3]), []); // ret
        assert_eq!(sizes(&[0xc9]), []); // leave
    }

    #[test]
    fn broadcasts_read_one_element_and_masked_loads_the_whole() {
        assert_eq!(
            sizes(&[0x62, 0xf1, 0x74, 0x58, 0x58, 0x07]),
            [(true, false, 4)]
        ); // vaddps zmm0,zmm1,[rdi]{1to16}
        assert_eq!(
            sizes(&[0x62, 0xf1, 0x7c, 0xc9, 0x28, 0x07]),
            [(true, false, 64)]
        ); // vmovaps zmm0{k1}{z},[rdi]
    }

    #[test]
    fn strings() {
        let two = of(&[0xf3, 0xa6]); // repe cmpsb
        assert_eq!(two.len(), 2);
        assert_eq!(
            two[0].form,
            Form::Repeated {
                pointer: RSI,
                count: COUNT_REGISTER,
                until: true
            }
        );
        assert_eq!(
            two[1].form,
            Form::Repeated {
                pointer: RDI,
                count: COUNT_REGISTER,
                until: true
            }
        );
        let movs = of(&[0xf3, 0x48, 0xa5]); // rep movsq
        assert_eq!(
            (movs[0].form, movs[0].read, movs[0].size),
            (
                Form::Repeated {
                    pointer: RSI,
                    count: COUNT_REGISTER,
                    until: false
                },
                true,
                8
            )
        );
        assert_eq!(
            (movs[1].form, movs[1].write),
            (
                Form::Repeated {
                    pointer: RDI,
                    count: COUNT_REGISTER,
                    until: false
                },
                true
            )
        );
        assert_eq!(of(&[0xac])[0].form, Form::Step { pointer: RSI }); // lodsb
        assert_eq!(of(&[0xf3, 0xaa]).iter().filter(|a| a.read).count(), 0); // rep stosb
        assert_eq!(of(&[0x67, 0xf3, 0xa4])[0].form, Form::Unknown); // rep movsb with 32-bit addresses
    }

    #[test]
    fn gathers_bit_strings_and_xlat() {
        // vpgatherdd xmm0,[rax+xmm1*4],xmm2
        let g = of(&[0xc4, 0xe2, 0x69, 0x90, 0x04, 0x88]);
        assert!(matches!(
            g[0].form,
            Form::Gather {
                place: EffectiveAddress {
                    base: Some(RAX),
                    scale: 4,
                    ..
                },
                index: 1
            }
        ));
        assert_eq!(g[0].size, 4);
        assert!(matches!(
            of(&[0x48, 0x0f, 0xa3, 0x0f])[0].form,
            Form::Bits { offset: RCX, .. }
        )); // bt [rdi],rcx
        assert!(matches!(
            of(&[0x48, 0x0f, 0xba, 0x27, 3])[0].form,
            Form::Plain(_)
        )); // bt qword [rdi],3
        assert_eq!(of(&[0xd7])[0].form, Form::Table);
    }

    #[test]
    fn rip_relative_operands_are_resolved() {
        let a = of(&[0x8b, 0x05, 0x10, 0, 0, 0])[0]; // mov eax,[rip+0x10]
        assert!(matches!(
            a.form,
            Form::Plain(EffectiveAddress {
                base: None,
                index: None,
                disp: 0x1016,
                ..
            })
        ));
    }

    #[test]
    fn a_destination_that_takes_its_own_address() {
        assert_eq!(destination(&[0x8b, 0x04, 0x8f]), Some(RAX)); // mov eax,[rdi+rcx*4]
        assert_eq!(destination(&[0x48, 0x8b, 0x04, 0xc8]), Some(RAX)); // mov rax,[rax+rcx*8]
        assert_eq!(destination(&[0x0f, 0xb6, 0x04, 0x0f]), Some(RAX)); // movzx eax, byte [rdi+rcx]
        assert_eq!(destination(&[0x66, 0x8b, 0x04, 0x4f]), None); // mov ax,[rdi+rcx*2]
        assert_eq!(destination(&[0x8a, 0x04, 0x0f]), None); // mov al,[rdi+rcx]
        assert_eq!(destination(&[0x0f, 0x44, 0x04, 0x8f]), None); // cmove eax,[rdi+rcx*4]
        assert_eq!(destination(&[0x03, 0x04, 0x8f]), None); // add eax,[rdi+rcx*4]
        assert_eq!(destination(&[0x0f, 0xbc, 0x04, 0x8f]), None); // bsf
        assert_eq!(destination(&[0x48, 0x8b, 0x24, 0xcf]), None); // mov rsp,[rdi+rcx*8]
        assert_eq!(destination(&[0x6b, 0x04, 0x8f, 5]), Some(RAX)); // imul eax,[rdi+rcx*4],5
    }
}
