//! Code written by probes for records, in both flavours.

use crate::emit::code_buffer::Single;
use crate::emit::emitter::{Emitter, MOV_LOAD, MOV_STORE, NO_INSN, PLACE_ADDRESS, PLACE_CURSOR};
use crate::emit::probe::Hold;
use crate::emit::relax::Pos;
use crate::emit::{EmitError, FixupKind, probe};
use crate::plan::cursor::cheapest;
use crate::plan::types::{Payload, RecordPlan, RegionPlan, VectorHalf, slots};
use crate::x86::encode;
use crate::x86::encode::Mem;
use crate::x86::insn::{Insn, InsnId};
use crate::x86::operands::own_destination;
use crate::x86::regs::{Gpr, RegSet, registers};
use iced_x86::InstructionInfoFactory;
use mgz_abi::address_map::{NO_REG, STATE_HALF};
use mgz_abi::probe::{GS_CURSOR, GS_SPILL};
use mgz_abi::slot::{ID_PAIR, MAX_REGION_SLOTS, SLOT_BYTES, SLOT_ID, SLOT_PAYLOAD, SLOT_SECOND};
use std::sync::LazyLock;

impl Single {
    /// Stores `register` into the slot at `cursor`.
    fn of(cursor: Gpr, register: Gpr) -> Single {
        let store = encode::store64(cursor, SLOT_PAYLOAD as i32, register);
        let id = encode::store_imm32(cursor, SLOT_ID as i32, 0);
        let advance = encode::lea32(cursor, cursor, SLOT_BYTES as i32);
        let commit = encode::mov_gs(false, MOV_STORE, cursor, GS_CURSOR);
        let tokens = u64::from_le_bytes([
            store.size(),
            id.size(),
            0,
            0,
            advance.size(),
            0,
            0,
            commit.size(),
        ]);
        Single {
            record: store.then(id),
            stored: store.size(),
            advance,
            commit: advance.then(commit),
            tokens,
        }
    }
}

impl Emitter<'_> {
    /// Emits the records at this instruction.
    #[inline]
    pub(crate) fn records(&mut self, id: InsnId, after: bool) -> Result<(), EmitError> {
        // Most instructions have none.
        if self.next_record == (id, after) {
            self.records_at(id, after)
        } else {
            Ok(())
        }
    }

    #[inline(never)]
    fn records_at(&mut self, id: InsnId, after: bool) -> Result<(), EmitError> {
        let function = self.function;
        while self.next_record == (id, after) {
            let records = &function.plan.regions[self.region].records[..];
            let record = records.get(self.record).ok_or(EmitError::Record)?;
            if self.pt {
                self.pt_record(record)?
            } else if let Payload::Count { flags } = record.payload {
                self.count(records, flags)?
            } else {
                self.soft_record(records, record)?
            }
            self.record += 1;
            match records.get(self.record) {
                Some(next) => self.next_record = (next.at, next.after),
                None => self.find_record(),
            }
        }
        Ok(())
    }

    /// Finds the position of the next record.
    pub(crate) fn find_record(&mut self) {
        let function = self.function;
        while let Some(region) = function.plan.regions.get(self.region) {
            if let Some(record) = region.records.get(self.record) {
                self.next_record = (record.at, record.after);
                return;
            }
            self.next_region(region);
        }
        self.next_record = (NO_INSN, false);
    }

    fn next_region(&mut self, region: &RegionPlan) {
        self.records_before += region.records.len() as u32;
        self.region += 1;
        self.record = 0;
        self.slots = 0;
        self.holds.clear();
    }

    /// Number of the current record in the function.
    pub(crate) fn number(&self) -> u32 {
        self.records_before + self.record as u32
    }

    fn pt_record(&mut self, record: &RecordPlan) -> Result<(), EmitError> {
        let insn = self.function.insn(record.of);
        let source = match record.payload {
            Payload::Reg(r) => Some(r),
            Payload::Nothing => None,
            Payload::Address => Some(self.pt_address(insn, record.after)?),
            Payload::Half(_) | Payload::Mask(_) | Payload::Count { .. } => {
                return Err(EmitError::Record);
            }
        };
        let at = self.sink.buffer.pos();
        self.record_at.push(at);
        self.ptwrite_at.push((at, self.number(), 0));
        self.sink
            .inserted(source.map_or(encode::ptwrite_any(), encode::ptwrite));
        Ok(())
    }

    /// Computes the operand's address into a dead register, or into the one that the load
    /// overwrites.
    fn pt_address(&mut self, insn: &Insn, after: bool) -> Result<Gpr, EmitError> {
        let operand = probe::operand(&insn.inst).ok_or(EmitError::Record)?;
        if after {
            return Err(EmitError::Record);
        }
        let free = RegSet(
            insn.dead
                .iter()
                .filter(|&r| r != Gpr(4) && !operand.mem.uses(r))
                .fold(0, |set, r| set | 1 << r.0),
        );
        let register = match cheapest(free) {
            Some(r) => r,
            None => {
                let dst = own_destination(
                    &insn.inst,
                    registers(&mut InstructionInfoFactory::new(), &insn.inst),
                )
                .ok_or(EmitError::NoRegister)?;
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

    /// `lea register, operand`. The fs base is added if the operand has that segment; the register
    /// must not be part of the operand then.
    fn address(&mut self, register: Gpr, operand: &probe::Operand) {
        if let Some(target) = operand.target {
            self.sink
                .put_open(0, encode::lea_rip(register), FixupKind::Original(target));
            return;
        }
        let mem = operand.mem;
        if !mem.fs {
            self.sink.inserted(encode::lea64(register, &mem));
            return;
        }
        // fs:[0] holds the segment's base.
        self.sink.inserted(encode::load64(
            register,
            &Mem {
                fs: true,
                ..Mem::default()
            },
        ));
        let parts = [mem.base.map(|r| (r, 1)), mem.index];
        let mut disp = mem.disp;
        for part in parts.into_iter().flatten() {
            self.sink.inserted(encode::lea64(
                register,
                &Mem {
                    index: Some(part),
                    ..Mem::base(register, disp)
                },
            ));
            disp = 0;
        }
        if parts == [None, None] && disp != 0 {
            self.sink
                .inserted(encode::lea64(register, &Mem::base(register, disp)));
        }
    }

    /// Loads or stores a word of the control page.
    pub(crate) fn gs(&mut self, wide: bool, opcode: u8, register: Gpr, offset: u32) {
        if self.fixed {
            // The next address plus the distance to `offset` is the offset itself.
            self.sink.put_open(
                0,
                encode::gs_rip(wide, opcode, register),
                FixupKind::Original(offset.into()),
            );
        } else {
            self.sink
                .inserted(encode::mov_gs(wide, opcode, register, offset));
        }
    }

    pub(crate) fn borrow(&mut self, register: Gpr, place: u8) {
        self.gs(true, MOV_STORE, register, GS_SPILL + 8 * u32::from(place));
        self.sink.state(|s| {
            let mut saved = s.saved();
            if let Some(free) = saved.iter_mut().find(|p| p[0] == NO_REG) {
                *free = [register.0, place];
            }
            s.with_saved(saved)
        });
    }

    pub(crate) fn give_back(&mut self, register: Gpr, place: u8) {
        self.gs(true, MOV_LOAD, register, GS_SPILL + 8 * u32::from(place));
        self.sink.state(|s| {
            let mut others = s
                .saved()
                .into_iter()
                .filter(|p| p[0] != register.0 && p[0] != NO_REG);
            s.with_saved(std::array::from_fn(|_| {
                others.next().unwrap_or([NO_REG; 2])
            }))
        });
    }

    /// Emits a record. `records`: those of its region.
    fn soft_record(
        &mut self,
        records: &[RecordPlan],
        record: &RecordPlan,
    ) -> Result<(), EmitError> {
        if self.record == 0 {
            // (Most regions have few records.)
            if records.len() > MAX_REGION_SLOTS && slots(records) > MAX_REGION_SLOTS {
                return Err(EmitError::Record);
            }
            match self.residencies.at(self.here()) {
                Some(residency) => self.holds.push(Hold {
                    first: 0,
                    last: records.len() - 1,
                    reg: residency.cursor.reg,
                    spilled: false,
                    resident: true,
                    late: residency.late,
                }),
                None => probe::plan_cursors(self.function, records, self.kept, &mut self.holds)?,
            }
        }
        let hold = *self
            .holds
            .iter()
            .find(|h| self.record <= h.last)
            .ok_or(EmitError::Record)?;
        let cursor = hold.reg;
        if self.record == hold.first && !hold.resident {
            if hold.spilled {
                self.borrow(cursor, PLACE_CURSOR);
            }
            match self.kept.take() {
                None => self.gs(false, MOV_LOAD, cursor, GS_CURSOR),
                Some(kept) if kept == cursor => {}
                Some(kept) => self.sink.inserted(encode::move32(cursor, kept)),
            }
            self.sink.state(|s| s.with_base_reg(cursor.0));
        }
        if let ([_], Payload::Reg(register), false, false) =
            (records, record.payload, hold.spilled, self.fixed)
            && self.single(record, register, hold)
        {
            return Ok(());
        }
        let at = self.slots as i32 * SLOT_BYTES as i32;
        self.payload(records, record, cursor, at)?;
        if self.record == hold.last {
            let last = self.record + 1 == records.len();
            if last {
                let total = self.slots as i32 * SLOT_BYTES as i32;
                self.sink.inserted(encode::lea32(cursor, cursor, total));
                if !hold.late {
                    let ahead = self.slots as u8;
                    self.sink.state(|s| s.with_base_ahead(ahead));
                    self.gs(false, MOV_STORE, cursor, GS_CURSOR);
                }
            }
            self.sink.state(|s| {
                let s = s.with_base_ahead(0);
                let s = if !hold.resident && (hold.spilled || !last) {
                    s.with_base_reg(NO_REG)
                } else {
                    s
                };
                if last { s.with_slots_done(0) } else { s }
            });
            if last && !hold.resident && !hold.spilled {
                self.kept = Some(cursor);
            }
            if hold.spilled {
                self.give_back(cursor, PLACE_CURSOR);
            }
        }
        Ok(())
    }

    /// The rest of a region whose only record holds a register, the usual case. The result equals
    /// that of the general path, with known instructions. Returns false, without effect, if the
    /// general path is needed.
    #[inline]
    fn single(&mut self, record: &RecordPlan, register: Gpr, hold: Hold) -> bool {
        static ALL: LazyLock<Vec<Single>> = LazyLock::new(|| {
            (0..=255)
                .map(|n| Single::of(Gpr(n >> 4), Gpr(n & 15)))
                .collect()
        });
        let start = self.sink.buffer.pos();
        let single = &ALL[usize::from(hold.reg.0 << 4 | register.0)];
        if record.second
            || register == hold.reg
            || !self.sink.put_single(single, !hold.late, self.number())
        {
            return false;
        }
        self.stored_at = start;
        self.record_at.push(Pos {
            byte: start.byte + u32::from(single.stored),
            ..start
        });
        if !hold.resident {
            self.kept = Some(hold.reg);
        }
        true
    }

    /// Writes one record's part of the slot at `cursor + at`.
    fn payload(
        &mut self,
        records: &[RecordPlan],
        record: &RecordPlan,
        cursor: Gpr,
        at: i32,
    ) -> Result<(), EmitError> {
        let slot = at
            + if record.second {
                SLOT_SECOND
            } else {
                SLOT_PAYLOAD
            } as i32;
        if record.after && !matches!(record.payload, Payload::Reg(_)) {
            return Err(EmitError::Record);
        }
        match record.payload {
            Payload::Reg(r) if r == cursor => return Err(EmitError::Record),
            Payload::Reg(r) => self.store(cursor, slot, r),
            Payload::Nothing => {}
            Payload::Count { .. } => return Err(EmitError::Record),
            Payload::Address => {
                let operand =
                    probe::operand(&self.function.insn(record.of).inst).ok_or(EmitError::Record)?;
                self.by_second(record, cursor, operand.mem.fs, slot, |e, register| {
                    e.address(register, &operand)
                })?;
            }
            Payload::Mask(mask) => {
                self.by_second(record, cursor, false, slot, |e, register| {
                    e.sink.inserted(encode::kmovw(register, mask))
                })?;
            }
            Payload::Half(VectorHalf { half, .. }) if half % 2 != 0 => {}
            Payload::Half(half) => return self.halves(record, half, cursor, at),
        }
        match records.get(self.record + 1).filter(|next| next.second) {
            Some(next) if next.at == record.at => {}
            Some(_) => {
                self.record_at.push(self.stored_at);
                self.sink.state(|s| s.with(STATE_HALF));
            }
            None => {
                let first = self
                    .record
                    .checked_sub(1)
                    .filter(|_| record.second)
                    .and_then(|n| records.get(n));
                self.store_id(
                    record.second,
                    first.is_some_and(|f| f.at == record.at),
                    cursor,
                    at,
                );
            }
        }
        Ok(())
    }

    /// Stores a value through a second register, which is borrowed if none is free.
    fn by_second(
        &mut self,
        record: &RecordPlan,
        cursor: Gpr,
        apart: bool,
        slot: i32,
        make: impl FnOnce(&mut Self, Gpr),
    ) -> Result<(), EmitError> {
        let (register, borrowed) = self.second(record, cursor, apart)?;
        if borrowed {
            self.borrow(register, PLACE_ADDRESS);
        }
        make(self, register);
        self.store(cursor, slot, register);
        if borrowed {
            // The record counts as written from here on.
            self.stored_at = self.sink.buffer.pos();
            self.give_back(register, PLACE_ADDRESS);
        }
        Ok(())
    }

    /// A register besides the cursor's, and true if it is borrowed.
    pub(crate) fn second(
        &self,
        record: &RecordPlan,
        cursor: Gpr,
        apart: bool,
    ) -> Result<(Gpr, bool), EmitError> {
        let scratch = self
            .residencies
            .at(self.here())
            .and_then(|s| s.scratch)
            .map(|k| k.reg);
        probe::second(self.function, record, cursor, scratch, apart)
    }

    #[inline]
    fn store(&mut self, cursor: Gpr, slot: i32, register: Gpr) {
        self.stored_at = self.sink.buffer.pos();
        self.sink.inserted(encode::store64(cursor, slot, register));
    }

    /// Stores sixteen bytes of a vector register, the upper eight in the slot after that of the
    /// lower eight. That slot may be in another chunk, so each is written by itself, and the first
    /// is complete before the second begins.
    fn halves(
        &mut self,
        record: &RecordPlan,
        half: VectorHalf,
        cursor: Gpr,
        at: i32,
    ) -> Result<(), EmitError> {
        let (register, borrowed) = self.second(record, cursor, false)?;
        if borrowed {
            self.borrow(register, PLACE_ADDRESS);
        }
        let VectorHalf {
            vector,
            bytes,
            half,
        } = half;
        let place = Mem::base(cursor, at);
        self.sink.inserted(match half / 2 {
            0 => encode::store_vector(&place, vector, 16),
            part => encode::store_part(&place, vector, bytes, part),
        });
        self.sink
            .inserted(encode::load64(register, &Mem::base(cursor, at + 8)));
        self.store_id(false, false, cursor, at);
        self.sink
            .inserted(encode::store64(cursor, at + SLOT_BYTES as i32, register));
        if borrowed {
            self.give_back(register, PLACE_ADDRESS);
        }
        Ok(())
    }

    /// Stores the id of the current record, or, if it is the second in its slot, the common id.
    /// `here`: the first record of the slot was written here, too.
    fn store_id(&mut self, second: bool, here: bool, cursor: Gpr, at: i32) {
        let number = self.number() - u32::from(second);
        let pos = self.sink.buffer.pos();
        self.record_at.push(pos);
        if here {
            self.record_at.push(pos);
        }
        let shares = if second { ID_PAIR } else { 0 };
        self.sink.put_id(
            encode::store_imm32(cursor, at + SLOT_ID as i32, shares),
            number,
        );
        self.slots += 1;
        let all = self.slots as u8;
        self.sink
            .state(|s| s.with_slots_done(all).without(STATE_HALF));
    }
}
