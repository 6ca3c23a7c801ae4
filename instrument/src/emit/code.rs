//! The walk over a function's instructions.

use super::asm::{self, Mem};
use super::probe::{self, Hold};
use super::relax::{Flex, Label};
use super::sink::Sink;
use super::{Emitted, EmitError, FixupKind, Marks, Table, rows};
use crate::disasm::Places;
use crate::regs::registers;
use crate::ir::{Function, Gpr, Insn, InsnId, Payload, RecordPlan, RegSet, RegionPlan};
use crate::operands::own_destination;
use crate::stay::{Stays, cheapest};
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, Register};
use mgz_annotations_schema::abi::{FLAVOUR_PT, GS_CURSOR, GS_SPILL, MAX_REGION_SLOTS, NO_REG, ProbeState, SLOT_BYTES, SLOT_ID, SLOT_PAYLOAD, STATE_PASSED};
use mgz_annotations_schema::sidecar::PtWrite;

/// `mov reg, mem`.
pub(super) const MOV_LOAD: u8 = 0x8b;
/// `mov mem, reg`.
pub(super) const MOV_STORE: u8 = 0x89;
/// Spill place of a hold's cursor register.
const PLACE_CURSOR: u8 = 0;
/// Spill place of an address register.
const PLACE_ADDRESS: u8 = 1;

/// Re-emits a function. `bytes` are the original's, from `function.range.start` on. `fixed`: the code will lie
/// below 1 GiB at the address that it is linked for. `translated`: see `abi`, "Translated clones".
pub fn emit(function: &Function, bytes: &[u8], flavour: u32, fixed: bool, translated: bool) -> Result<Emitted, EmitError> {
    let pieces: std::borrow::Cow<[u32]> = match function.stays.starts() {
        [] => function.blocks.iter().map(|b| b.insns.start).collect(),
        starts => starts.into(),
    };
    let mut emitter = Emitter {
        function,
        bytes,
        pt: flavour == FLAVOUR_PT,
        fixed,
        translated,
        places: Places::of(function.insns.iter().map(|i| i.ip)),
        sink: Sink::new(function.insns.len() + pieces.len()),
        pieces,
        factory: InstructionInfoFactory::new(),
        stays: &function.stays,
        piece: 0,
        block: 0,
        kept: None,
        left: Vec::with_capacity(function.blocks.len()),
        starts: Vec::new(),
        region: 0,
        record: 0,
        records_before: 0,
        slots: 0,
        holds: Vec::new(),
        moved: false,
        record_at: Vec::with_capacity(function.regions.iter().map(|r| r.records.len()).sum()),
        ptwrite_at: Vec::new(),
        copy_at: Vec::with_capacity(function.insns.len()),
    };
    emitter.run()?;
    emitter.finish()
}

pub(super) struct Emitter<'a> {
    pub(super) function: &'a Function,
    bytes: &'a [u8],
    /// Instructions by their addresses.
    places: Places,
    pt: bool,
    pub(super) fixed: bool,
    translated: bool,
    pub(super) sink: Sink,
    /// iced's scratch space.
    factory: InstructionInfoFactory,
    /// First instructions of the pieces, see [`crate::stay::pieces`].
    pub(super) pieces: std::borrow::Cow<'a, [u32]>,
    /// Where the cursor is in a register. A piece's label is that of its first instruction; `insns.len() + piece` is
    /// the label of the code before it that leads into or out of a stay.
    pub(super) stays: &'a Stays,
    /// Number of the piece at hand.
    pub(super) piece: usize,
    /// Number of the next block.
    pub(super) block: usize,
    /// Outside of stays: the register that holds the cursor since the last region. Nobody reads what the program had in it.
    pub(super) kept: Option<Gpr>,
    /// Per block so far: the register that holds the cursor where control leaves it.
    pub(super) left: Vec<Option<Gpr>>,
    /// Per piece: where what belongs to it begins.
    pub(super) starts: Vec<super::relax::Pos>,
    /// Next region, and next record inside it.
    region: usize,
    record: usize,
    /// Records of earlier regions.
    records_before: u32,
    /// Slots of the current region written so far.
    slots: u32,
    holds: Vec<Hold>,
    /// The load at hand reads through the register that holds its address.
    moved: bool,
    /// Per record: where its id is stored, or its first `ptwrite`.
    record_at: Vec<super::relax::Pos>,
    /// Place, local record number, part.
    ptwrite_at: Vec<(super::relax::Pos, u32, u32)>,
    /// Per instruction: where its copy starts, behind the probes.
    copy_at: Vec<super::relax::Pos>,
}

impl<'a> Emitter<'a> {
    fn run(&mut self) -> Result<(), EmitError> {
        let function = self.function;
        let mut heads = loop_heads(function);
        let mut expected = function.range.start;
        for (i, insn) in function.insns.iter().enumerate() {
            let id = InsnId(i as u32);
            if insn.ip < expected {
                return Err(EmitError::Encoding);
            }
            if insn.ip > expected {
                if i > 0 {
                    self.leave_to(i - 1);
                }
                self.sink.skip(insn.ip - expected);
            }
            expected = insn.end();
            if i > 0 && function.blocks.get(self.block).is_some_and(|b| b.insns.start == id.0) {
                self.end_block();
            }
            while self.pieces.get(self.piece + 1).is_some_and(|b| *b <= id.0) {
                self.piece += 1;
            }
            if self.pieces[self.piece] == id.0 {
                self.enter_piece();
            }
            let after_nop = i > 0 && is_nop(&function.insns[i - 1].inst);
            if heads.next_if_eq(&id).is_some() && after_nop && insn.ip.is_multiple_of(16) {
                self.sink.flex(0, Flex::Align(15));
            }
            self.sink.bind(Label(id.0));
            self.moved = false;
            self.records(id, false)?;
            self.leave_stay(insn);
            if self.ends_keeping(insn) {
                self.forget();
            }
            self.copy_at.push(self.sink.buffer.pos());
            self.instruction(id)?;
            if insn.is_overlapped() {
                self.sink.state(|s| s.flags |= STATE_PASSED);
            }
            if self.kept.is_some_and(|r| function.uses[i].clobber.contains(r)) {
                self.forget();
            }
            self.records(id, true)?;
            if insn.is_overlapped() {
                self.pass(insn)?;
            }
        }
        if let Some(last) = function.insns.len().checked_sub(1) {
            self.leave_to(last);
        }
        self.forget();
        if *self.sink.current() == self.stays.state(self.here()) {
            self.sink.state(|s| *s = ProbeState::IDLE);
        }
        if self.region != function.regions.len() && function.regions[self.region..].iter().any(|r| !r.records.is_empty()) {
            return Err(EmitError::Record);
        }
        Ok(())
    }

    fn insn_at(&self, ip: u64) -> Option<InsnId> {
        self.places.get(ip).map(|i| InsnId(i as u32))
    }

    pub(super) fn raw(&self, insn: &Insn) -> Result<&'a [u8], EmitError> {
        let start = insn.ip.checked_sub(self.function.range.start).ok_or(EmitError::NoBytes)? as usize;
        self.bytes.get(start..start + insn.inst.len()).ok_or(EmitError::NoBytes)
    }

    /// Behind an instruction whose encoding the next one shares: goes on behind both.
    fn pass(&mut self, insn: &Insn) -> Result<(), EmitError> {
        let to = match self.insn_at(insn.next()).map(|id| self.way_to(id)) {
            Some((label, None)) => Ok(label),
            None if !self.stays.needs_code(self.here(), None) => Err(insn.next()),
            _ => return Err(EmitError::Record),
        };
        self.jump(0, to);
        self.sink.state(|s| s.flags &= !STATE_PASSED);
        Ok(())
    }

    /// If the instruction may fall through to bytes that have no clone, jumps to where they go.
    fn leave_to(&mut self, index: usize) {
        let insn = &self.function.insns[index];
        let falls = !matches!(
            insn.flow,
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return | FlowControl::Exception
        );
        if falls {
            let next = insn.next();
            self.transit(self.stays.out(self.piece), None);
            self.sink.insn(0, Some(FixupKind::Code(next)), asm::jmp32);
        }
    }

    /// Whether a call returns to this instruction in a translated clone: it looks the address up in the address map, which has only what
    /// the clone has.
    fn is_returned_to(&self, id: InsnId) -> bool {
        let before = (id.0 as usize).checked_sub(1).map(|i| &self.function.insns[i]);
        self.translated && before.is_some_and(|b| b.next() == self.function.insn(id).ip && matches!(b.flow, FlowControl::Call | FlowControl::IndirectCall))
    }

    fn instruction(&mut self, id: InsnId) -> Result<(), EmitError> {
        let insn = self.function.insn(id);
        let inst = &insn.inst;
        if is_nop(inst) && !self.is_returned_to(id) {
            self.sink.skip(insn.len.into());
            return Ok(());
        }
        if let Some(table) = self.function.tables.iter().position(|t| t.load == id) {
            return self.table_load(insn, table as u32);
        }
        if self.function.hooks.contains(&id) {
            self.hooked_call(insn);
            return Ok(());
        }
        if self.moved {
            return self.moved_load(insn, None);
        }
        if self.translated && self.transfer(insn)? {
            return Ok(());
        }
        match inst.flow_control() {
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch | FlowControl::Call | FlowControl::XbeginXabortXend
                if is_direct(inst) =>
            {
                self.branch(insn)
            }
            _ => self.copy(insn),
        }
    }

    fn copy(&mut self, insn: &Insn) -> Result<(), EmitError> {
        let raw = self.raw(insn)?;
        if !insn.inst.is_ip_rel_memory_operand() {
            self.sink.insn(insn.len, None, |out| {
                out.extend_from_slice(raw);
                0
            });
            return Ok(());
        }
        let field = asm::modrm_offset(raw).ok_or(EmitError::Encoding)? + 1;
        let disp = raw.get(field..field + 4).ok_or(EmitError::Encoding)?;
        let disp = i32::from_le_bytes([disp[0], disp[1], disp[2], disp[3]]);
        let target = insn.inst.ip_rel_memory_address();
        let read = insn.next().wrapping_add_signed(disp.into());
        if raw[field - 1] & 0xc7 != 5 || read != target {
            return Err(EmitError::Encoding);
        }
        self.sink.insn(insn.len, Some(FixupKind::Original(target)), |out| {
            let at = out.len() + field;
            out.extend_from_slice(raw);
            at
        });
        Ok(())
    }

    /// A direct branch. Prefixes that mean nothing on one (bnd, hints) are dropped.
    fn branch(&mut self, insn: &Insn) -> Result<(), EmitError> {
        let raw = self.raw(insn)?;
        let prefixes = raw.iter().take_while(|b| matches!(b, 0x66 | 0x67 | 0xf2 | 0xf3 | 0x2e | 0x3e | 0x26 | 0x36 | 0x64 | 0x65)).count();
        let rex = usize::from(raw.get(prefixes).is_some_and(|b| b & 0xf0 == 0x40));
        let opcode = raw.get(prefixes + rex..).ok_or(EmitError::Encoding)?;
        let addr32 = raw[..prefixes].contains(&0x67);
        let target = insn.inst.near_branch_target();
        let (inside, transit) = match self.insn_at(target) {
            Some(id) => {
                let (label, transit) = self.way_to(id);
                (Some(label), transit)
            }
            None => (None, self.stays.needs_code(self.here(), None).then_some(None)),
        };
        let outside = Some(FixupKind::Code(target));
        match (opcode, inside) {
            ([0xe8, ..], _) => self.sink.insn(insn.len, outside, |out| {
                out.extend_from_slice(&[0xe8, 0, 0, 0, 0]);
                out.len() - 4
            }),
            ([0xe9 | 0xeb, ..], inside) => {
                if let Some(to) = transit {
                    self.transit(self.here(), to);
                }
                self.jump(insn.len, inside.ok_or(target));
                // What follows the jump, if anything, does not come from where it goes.
                let state = self.state_here();
                self.sink.state(|s| *s = state);
            }
            (&[op @ 0x70..=0x7f, ..] | &[0x0f, op @ 0x80..=0x8f, ..], inside) => {
                self.conditional(insn.len, op & 15, inside.ok_or(target), transit);
            }
            _ if transit.is_some() => return Err(EmitError::Record),
            (&[opcode @ 0xe0..=0xe3, ..], Some(label)) => self.sink.flex(insn.len, Flex::Short { opcode, addr32, label }),
            (&[opcode @ 0xe0..=0xe3, ..], None) => {
                self.sink.inserted(|out| {
                    if addr32 {
                        out.push(0x67);
                    }
                    out.extend_from_slice(&[opcode, 2]);
                });
                self.sink.inserted(|out| out.extend_from_slice(&[0xeb, 5]));
                self.sink.insn(insn.len, outside, asm::jmp32);
            }
            ([0xc7, 0xf8, ..], _) => self.sink.insn(insn.len, outside, |out| {
                out.extend_from_slice(&[0xc7, 0xf8, 0, 0, 0, 0]);
                out.len() - 4
            }),
            _ => return Err(EmitError::Encoding),
        }
        Ok(())
    }

    /// The load of a jump-table entry: reads the copy.
    fn table_load(&mut self, insn: &Insn, table: u32) -> Result<(), EmitError> {
        if self.moved {
            return self.moved_load(insn, Some(table));
        }
        let raw = self.raw(insn)?;
        let at = asm::modrm_offset(raw).ok_or(EmitError::Encoding)?;
        let modrm = raw[at];
        let sib = if modrm & 7 == 4 { Some(*raw.get(at + 1).ok_or(EmitError::Encoding)?) } else { None };
        let head = at + 1 + usize::from(sib.is_some());
        let (modrm, old_len) = match (modrm >> 6, modrm & 7, sib) {
            (0, 4, Some(sib)) if sib & 7 == 5 => (modrm, 4),
            (0, 5, _) | (3, ..) => return Err(EmitError::Encoding),
            (0, ..) => (modrm | 0x80, 0),
            (1, ..) => (modrm ^ 0xc0, 1),
            _ => (modrm, 4),
        };
        let tail = raw.get(head + old_len..).ok_or(EmitError::Encoding)?;
        if insn.inst.memory_base().is_gpr32() || insn.inst.memory_index().is_gpr32() {
            return Err(EmitError::Encoding);
        }
        let disp = i32::try_from(insn.inst.memory_displacement64() as i64).map_err(|_| EmitError::Encoding)?;
        if raw.len() + 4 - old_len > 15 {
            return Err(EmitError::Encoding);
        }
        self.sink.insn(insn.len, Some(FixupKind::Table { table, disp }), |out| {
            out.extend_from_slice(&raw[..at]);
            out.push(modrm);
            out.extend(sib);
            let field = out.len();
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(tail);
            field
        });
        Ok(())
    }

    /// The load whose destination already holds the address: `op dst, [dst]`.
    fn moved_load(&mut self, insn: &Insn, table: Option<u32>) -> Result<(), EmitError> {
        let dst = own_destination(&insn.inst, registers(&mut self.factory, &insn.inst)).ok_or(EmitError::Record)?;
        let raw = self.raw(insn)?;
        let at = asm::modrm_offset(raw).ok_or(EmitError::Encoding)?;
        let tail = raw.get(asm::operand_end(raw, at).ok_or(EmitError::Encoding)?..).ok_or(EmitError::Encoding)?;
        let head = moved_head(&raw[..at], dst).ok_or(EmitError::Encoding)?;
        if head.len() + 6 + tail.len() > 15 {
            return Err(EmitError::Encoding);
        }
        let kind = table.map(|table| FixupKind::Table { table, disp: 0 });
        self.sink.insn(insn.len, kind, |out| {
            out.extend_from_slice(&head);
            // A displacement to be filled in takes four bytes whatever it is.
            let disp = if kind.is_some() { i32::MAX } else { 0 };
            asm::modrm(out, dst.0, &Mem::base(dst, disp));
            let end = out.len();
            out.extend_from_slice(tail);
            end - 4
        });
        Ok(())
    }

    /// Emits the records that stand at this instruction.
    #[inline]
    fn records(&mut self, id: InsnId, after: bool) -> Result<(), EmitError> {
        // Most instructions have none.
        let next = self.function.regions.get(self.region).and_then(|region| region.records.get(self.record));
        if next.is_some_and(|next| next.at != id || next.after != after) { Ok(()) } else { self.records_at(id, after) }
    }

    fn records_at(&mut self, id: InsnId, after: bool) -> Result<(), EmitError> {
        let function = self.function;
        loop {
            let Some(region) = function.regions.get(self.region) else { return Ok(()) };
            let Some(record) = region.records.get(self.record) else {
                self.next_region(region);
                continue;
            };
            if record.at != id || record.after != after {
                return Ok(());
            }
            if self.pt { self.pt_record(record)? } else { self.soft_record(region, record)? }
            self.record += 1;
            if self.record == region.records.len() {
                self.next_region(region);
            }
        }
    }

    fn next_region(&mut self, region: &RegionPlan) {
        self.records_before += region.records.len() as u32;
        self.region += 1;
        self.record = 0;
        self.slots = 0;
        self.holds.clear();
    }

    /// Local number of the record at hand.
    fn number(&self) -> u32 {
        self.records_before + self.record as u32
    }

    fn pt_record(&mut self, record: &RecordPlan) -> Result<(), EmitError> {
        let insn = self.function.insn(record.at);
        if record.slots != 1 {
            return Err(EmitError::Record);
        }
        let source = match record.payload {
            Payload::Reg(r) => Some(r),
            Payload::Nothing => None,
            Payload::Address => Some(self.pt_address(insn, record.after)?),
            Payload::Gather => return Err(EmitError::Record),
        };
        let at = self.sink.buffer.pos();
        self.record_at.push(at);
        self.ptwrite_at.push((at, self.number(), 0));
        self.sink.inserted(|out| match source {
            Some(r) => asm::ptwrite(out, r),
            None => asm::ptwrite_any(out),
        });
        Ok(())
    }

    /// Puts the operand's address into a dead register, or into the one that the load overwrites.
    fn pt_address(&mut self, insn: &Insn, after: bool) -> Result<Gpr, EmitError> {
        let operand = probe::operand(&insn.inst).ok_or(EmitError::Record)?;
        if after {
            return Err(EmitError::Record);
        }
        let free = RegSet(insn.dead.iter().filter(|&r| r != Gpr(4) && !operand.mem.uses(r)).fold(0, |set, r| set | 1 << r.0));
        let register = match cheapest(free) {
            Some(r) => r,
            None => {
                let dst = own_destination(&insn.inst, registers(&mut self.factory, &insn.inst)).ok_or(EmitError::NoRegister)?;
                self.moved = operand.mem.uses(dst);
                if operand.mem.fs && self.moved {
                    return Err(EmitError::NoRegister);
                }
                dst
            }
        };
        self.address(register, &operand);
        Ok(register)
    }

    /// `lea register, operand`, with the fs base added if the operand has that segment (then the register
    /// must not be part of the operand).
    fn address(&mut self, register: Gpr, operand: &probe::Operand) {
        if let Some(target) = operand.target {
            self.sink.insn(0, Some(FixupKind::Original(target)), |out| asm::lea_rip(out, register));
            return;
        }
        let mem = operand.mem;
        if !mem.fs {
            self.sink.inserted(|out| asm::lea64(out, register, &mem));
            return;
        }
        // fs:[0] holds the segment's base.
        self.sink.inserted(|out| asm::load64(out, register, &Mem { fs: true, ..Mem::default() }));
        let parts = [mem.base.map(|r| (r, 1)), mem.index];
        let mut disp = mem.disp;
        for part in parts.into_iter().flatten() {
            self.sink.inserted(|out| asm::lea64(out, register, &Mem { index: Some(part), ..Mem::base(register, disp) }));
            disp = 0;
        }
        if parts == [None, None] && disp != 0 {
            self.sink.inserted(|out| asm::lea64(out, register, &Mem::base(register, disp)));
        }
    }

    /// Loads or stores a word of the control page.
    pub(super) fn gs(&mut self, wide: bool, opcode: u8, register: Gpr, offset: u32) {
        if self.fixed {
            // The sum of the next address and the distance to `offset` is the offset itself.
            self.sink.insn(0, Some(FixupKind::Original(offset.into())), |out| asm::gs_rip(out, wide, opcode, register));
        } else {
            self.sink.inserted(|out| asm::mov(out, wide, opcode, register, &Mem::gs(offset)));
        }
    }

    pub(super) fn borrow(&mut self, register: Gpr, place: u8) {
        self.gs(true, MOV_STORE, register, GS_SPILL + 8 * u32::from(place));
        self.sink.state(|s| {
            if let Some(free) = s.saved.iter_mut().find(|p| p[0] == NO_REG) {
                *free = [register.0, place];
            }
        });
    }

    pub(super) fn give_back(&mut self, register: Gpr, place: u8) {
        self.gs(true, MOV_LOAD, register, GS_SPILL + 8 * u32::from(place));
        self.sink.state(|s| {
            let mut others = s.saved.into_iter().filter(|p| p[0] != register.0 && p[0] != NO_REG);
            s.saved = std::array::from_fn(|_| others.next().unwrap_or([NO_REG; 2]));
        });
    }

    fn soft_record(&mut self, region: &RegionPlan, record: &RecordPlan) -> Result<(), EmitError> {
        if self.record == 0 {
            let slots: usize = region.records.iter().map(|r| usize::from(r.slots)).sum();
            if slots > MAX_REGION_SLOTS {
                return Err(EmitError::Record);
            }
            self.holds = match self.stays.at(self.here()) {
                Some(stay) => vec![Hold { first: 0, last: region.records.len() - 1, reg: stay.cursor.reg, spilled: false, stays: true, late: stay.late }],
                None => probe::plan(self.function, region, self.kept)?,
            };
        }
        let hold = *self.holds.iter().find(|h| (h.first..=h.last).contains(&self.record)).ok_or(EmitError::Record)?;
        let cursor = hold.reg;
        if self.record == hold.first && !hold.stays {
            if hold.spilled {
                self.borrow(cursor, PLACE_CURSOR);
            }
            match self.kept.take() {
                None => self.gs(false, MOV_LOAD, cursor, GS_CURSOR),
                Some(kept) if kept == cursor => {}
                Some(kept) => self.sink.inserted(|out| asm::move32(out, cursor, kept)),
            }
            self.sink.state(|s| s.base_reg = cursor.0);
        }
        let at = self.slots as i32 * SLOT_BYTES as i32;
        self.payload(record, cursor, at)?;
        if self.record == hold.last {
            let last = self.record + 1 == region.records.len();
            if last {
                let total = self.slots as i32 * SLOT_BYTES as i32;
                self.sink.inserted(|out| asm::lea32(out, cursor, &Mem::base(cursor, total)));
                if !hold.late {
                    let ahead = self.slots as u8;
                    self.sink.state(|s| s.base_ahead = ahead);
                    self.gs(false, MOV_STORE, cursor, GS_CURSOR);
                }
            }
            self.sink.state(|s| {
                s.base_ahead = 0;
                if !hold.stays && (hold.spilled || !last) {
                    s.base_reg = NO_REG;
                }
                if last {
                    s.slots_done = 0;
                }
            });
            if last && !hold.stays && !hold.spilled {
                self.kept = Some(cursor);
            }
            if hold.spilled {
                self.give_back(cursor, PLACE_CURSOR);
            }
        }
        Ok(())
    }

    /// Writes one record's slots at `cursor + at`.
    fn payload(&mut self, record: &RecordPlan, cursor: Gpr, at: i32) -> Result<(), EmitError> {
        let function = self.function;
        let insn = function.insn(record.at);
        let slot = Mem::base(cursor, at + SLOT_PAYLOAD as i32);
        match record.payload {
            Payload::Reg(r) if r == cursor => return Err(EmitError::Record),
            Payload::Reg(r) => self.sink.inserted(|out| asm::store64(out, &slot, r)),
            Payload::Nothing => {}
            Payload::Address | Payload::Gather => {
                if record.after {
                    return Err(EmitError::Record);
                }
                let operand = probe::operand(&insn.inst).ok_or(EmitError::Record)?;
                let scratch = self.stays.at(self.here()).and_then(|s| s.scratch).map(|k| k.reg);
                let (register, borrowed) = probe::second(function, record, cursor, scratch, operand.mem.fs)?;
                if borrowed {
                    self.borrow(register, PLACE_ADDRESS);
                }
                self.address(register, &operand);
                self.sink.inserted(|out| asm::store64(out, &slot, register));
                if record.payload == Payload::Gather {
                    self.store_id(cursor, at);
                    self.gather(record, &insn.inst, cursor, at, register)?;
                }
                if borrowed {
                    self.give_back(register, PLACE_ADDRESS);
                }
            }
        }
        if record.payload != Payload::Gather {
            if record.slots != 1 {
                return Err(EmitError::Record);
            }
            self.store_id(cursor, at);
        }
        Ok(())
    }

    fn store_id(&mut self, cursor: Gpr, at: i32) {
        self.record_at.push(self.sink.buffer.pos());
        let id = FixupKind::RecordId(self.number());
        self.sink.insn(0, Some(id), |out| asm::store_imm32(out, &Mem::base(cursor, at + SLOT_ID as i32)));
        self.done(1);
    }

    /// That many more slots are complete.
    fn done(&mut self, slots: u32) {
        self.slots += slots;
        let all = self.slots as u8;
        self.sink.state(|s| s.slots_done = all);
    }

    /// The raw slots of a gather: index vector, then mask.
    fn gather(&mut self, record: &RecordPlan, inst: &Instruction, cursor: Gpr, at: i32, scratch: Gpr) -> Result<(), EmitError> {
        let index = inst.memory_index();
        let mask = match inst.op_mask() {
            Register::None => inst.op2_register(),
            k => k,
        };
        let mut next = at + SLOT_BYTES as i32;
        for register in [index, mask] {
            let place = Mem::base(cursor, next);
            let number = register.number() as u8;
            let bytes = match register {
                r if r.is_xmm() => 16,
                r if r.is_ymm() => 32,
                r if r.is_zmm() => 64,
                r if r.is_k() => {
                    self.sink.inserted(|out| asm::kmovw(out, scratch, number));
                    self.sink.inserted(|out| asm::store64(out, &place, scratch));
                    self.done(1);
                    next += SLOT_BYTES as i32;
                    continue;
                }
                _ => return Err(EmitError::Record),
            };
            self.sink.inserted(|out| asm::store_vector(out, &place, number, bytes));
            self.done(u32::from(bytes) / SLOT_BYTES as u32);
            next += i32::from(bytes as i16);
        }
        if (next - at) / SLOT_BYTES as i32 != i32::from(record.slots) {
            return Err(EmitError::Record);
        }
        Ok(())
    }

    fn finish(self) -> Result<Emitted, EmitError> {
        if *self.sink.current() != ProbeState::IDLE {
            return Err(EmitError::Record);
        }
        let function = self.function;
        let places: Vec<_> = (0..function.insns.len()).map(|i| self.sink.buffer.place(Label(i as u32))).collect();
        let finished = self.sink.finish();
        let resolved = &finished.resolved;
        let mut marks: Vec<(u32, u32)> =
            function.insns.iter().zip(&places).map(|(insn, &p)| ((insn.ip - function.range.start) as u32, resolved.offset(p))).collect();
        let mut begins = Vec::new();
        for (b, &first) in self.pieces.iter().enumerate() {
            let first = first as usize;
            let begin = resolved.offset(self.starts[b]);
            // Who comes from outside is in no stay.
            if self.stays.of(b).is_some() && self.stays.before(b) == Some(None) {
                marks[first].1 = begin;
            } else if begin != marks[first].1 {
                begins.push((first as u32, begin));
            }
        }
        let tables = function.tables.iter().map(|t| {
            let lost = |&a: &u64| function.range.contains(&a) && function.insn_at(a).is_none();
            if t.targets.iter().any(lost) {
                return Err(EmitError::Record);
            }
            Ok(Table { original: t.table, form: t.form, targets: t.targets.clone() })
        });
        let tables: Vec<Table> = tables.collect::<Result<_, EmitError>>()?;
        let rows = rows::rows(
            function,
            &self.record_at.iter().map(|&p| resolved.offset(p).into()).collect::<Vec<u64>>(),
            &self.copy_at.iter().map(|&p| resolved.offset(p).into()).collect::<Vec<u64>>(),
            self.ptwrite_at.iter().map(|&(p, record, part)| PtWrite { ip: resolved.offset(p).into(), record, part }).collect(),
        )?;
        let patches = patches(function, &marks);
        Ok(Emitted {
            range: function.range.clone(),
            fixups: finished.fixups,
            tables,
            marks: Marks::new(&marks, begins),
            patches,
            calls: function.hooks.iter().map(|&id| function.insns[id.0 as usize].ip).collect(),
            stream: finished.stream,
            states: finished.states,
            rows,
            align: if finished.is_aligned { 16 } else { 1 },
            code: finished.resolved.code,
        })
    }
}

/// Instructions that start a block which a later block jumps back to, in order.
fn loop_heads(function: &Function) -> std::iter::Peekable<impl Iterator<Item = InsnId>> {
    let heads = function.blocks.iter().enumerate().filter(|(i, b)| b.preds.iter().any(|p| p.0 as usize >= *i));
    heads.map(|(_, b)| InsnId(b.insns.start)).peekable()
}

/// Whether the instruction does nothing at all. `endbr64` and `pause` have mnemonics of their own.
fn is_nop(inst: &Instruction) -> bool {
    inst.mnemonic() == Mnemonic::Nop
}

fn is_direct(inst: &Instruction) -> bool {
    inst.op_count() > 0 && matches!(inst.op0_kind(), iced_x86::OpKind::NearBranch64 | iced_x86::OpKind::NearBranch32 | iced_x86::OpKind::NearBranch16)
}

/// Where the original may get jumps into the clone: the function's start, blocks that are entered from
/// outside, and targets of indirect jumps that were not understood. A jump replaces five bytes of one
/// block, so that no branch can reach its middle; an `endbr64` in front stays.
fn patches(function: &Function, marks: &[(u32, u32)]) -> Vec<(u64, u32)> {
    let start = function.range.start;
    let mut wanted: Vec<u64> = vec![start];
    wanted.extend(function.blocks.iter().filter(|b| b.external_entry).map(|b| function.insns[b.insns.start as usize].ip));
    wanted.extend_from_slice(&function.landings);
    wanted.sort_unstable();
    wanted.dedup();
    let mut patches = Vec::new();
    for at in wanted {
        let Some(block) = function.block_at(at) else { continue };
        let insns = function.blocks[block.0 as usize].insns.clone();
        let mut first = insns.start as usize;
        if function.insns[first].inst.mnemonic() == Mnemonic::Endbr64 {
            first += 1;
        }
        if first >= insns.end as usize {
            continue;
        }
        let at = function.insns[first].ip;
        if function.may_patch(InsnId(first as u32)) {
            // What leads into a stay stands before the `endbr64`, which does nothing.
            let piece = function.stays.starts().binary_search(&insns.start).unwrap_or(block.0 as usize);
            let into = if function.stays.of(piece).is_some() { insns.start as usize } else { first };
            patches.push((at, marks[into].1));
        }
    }
    patches
}

/// The bytes before ModRM of `op dst, [dst]`, from those of `op dst, [anything]`: segment and address-size
/// prefixes go, and the base's extension bit becomes the register's.
fn moved_head(raw: &[u8], dst: Gpr) -> Option<Vec<u8>> {
    let prefixes = raw.iter().take_while(|b| matches!(b, 0x66 | 0x67 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65)).count();
    let mut head: Vec<u8> = raw[..prefixes].iter().copied().filter(|b| matches!(b, 0x66 | 0xf2 | 0xf3)).collect();
    let high = dst.0 >= 8;
    match raw[prefixes..] {
        [0xc5, p, opcode] => head.extend_from_slice(&[0xc4, p & 0x80 | 0x61 & if high { 0xdf } else { 0xff }, p & 0x7f, opcode]),
        [0xc4, p, q, opcode] => head.extend_from_slice(&[0xc4, p & 0x9f | 0x40 | if high { 0 } else { 0x20 }, q, opcode]),
        [0x62 | 0xc4 | 0xc5 | 0x8f, ..] => return None,
        ref rest => {
            let (rex, opcode) = match rest.split_first() {
                Some((&first, rest)) if first & 0xf0 == 0x40 => (first, rest),
                _ => (0x40, rest),
            };
            let rex = rex & 0x48 | if high { 5 } else { 0 };
            if rex != 0x40 {
                head.push(rex);
            }
            head.extend_from_slice(opcode);
        }
    }
    Some(head)
}
