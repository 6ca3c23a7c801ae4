//! Prefetches at an address that is computed some iterations ahead.

use crate::common::prefetch::{Kind, Placed};
use crate::plan::cursor::cheapest;
use crate::plan::types::Piece;
use crate::prefetch::assemble::{Assembly, address_registers, moved, operand, sized, wide};
use crate::prefetch::operation::Operation;
use crate::prefetch::params::MAX_BYTES_AHEAD;
use crate::prefetch::search::PrefetchSearch;
use crate::prefetch::slice::{AddressSlice, Early};
use crate::prefetch::strided::{MAX_FACTOR, by_factors, sum};
use crate::prefetch::{Code, Line, Load, Reason};
use crate::x86::regs::{Gpr, RSP, RegSet, gpr};
use iced_x86::{Instruction, MemoryOperand, OpKind, Register};

/// Registers that hold the program's values of some iterations ahead.
struct Names {
    free: RegSet,
    of: [Option<Gpr>; 16],
    /// Per register of the program: number of the last operation that reads it.
    last: [usize; 16],
}

impl Names {
    fn of(slice: &AddressSlice, address: RegSet, free: RegSet) -> Names {
        let mut last = [0; 16];
        for (n, operation) in slice.operations.iter().enumerate() {
            for r in operation.reads.iter() {
                last[usize::from(r.0)] = n;
            }
        }
        for r in address.iter() {
            last[usize::from(r.0)] = slice.operations.len();
        }
        Names {
            free,
            of: [None; 16],
            last,
        }
    }

    fn get(&self, r: Gpr) -> Option<Gpr> {
        self.of[usize::from(r.0)]
    }

    /// A free register for the value of `r`, `r` itself if it is free.
    fn take(&mut self, r: Gpr) -> Result<Gpr, Reason> {
        let own = Some(r).filter(|r| self.free.contains(*r));
        let new = own
            .or_else(|| cheapest(self.free))
            .ok_or_else(no_register)?;
        self.free = self.free.without(new);
        self.of[usize::from(r.0)] = Some(new);
        Ok(new)
    }

    /// Frees the registers that are not read after an operation.
    fn release(&mut self, number: usize, operation: &Operation) {
        for r in operation.reads.iter().filter(|r| *r != operation.to) {
            if self.last[usize::from(r.0)] <= number
                && let Some(held) = self.of[usize::from(r.0)].take()
            {
                self.free = self.free.with(held);
            }
        }
    }
}

fn no_register() -> Reason {
    "no register is free where the address could be computed".into()
}

impl PrefetchSearch<'_, '_, '_> {
    /// Computes the address ahead, from an index that is loaded early if there is one.
    pub fn gather(&mut self, load: &Load, distance: u32) -> Result<Code, Reason> {
        let slice = self.slice(load)?;
        let distance = match &slice.early {
            Some(early) => on_one_page(early, distance)?,
            None => distance,
        };
        let distance = match slice.sums[..] {
            [] => distance,
            _ => by_factors(distance),
        };
        let changes_flags = slice.early.is_some() || slice.operations.iter().any(|o| o.flags);
        let places = match &slice.early {
            Some(early) => self.places_near(early.insn),
            None => {
                let start = self.view.graph.blocks[load.block].insns.start as usize;
                (start..=load.insn).rev().collect()
            }
        };
        let mut why = None;
        for at in places {
            let result = match changes_flags && !self.may_change_flags(at) {
                true => Err("flags are in use where the address could be computed".into()),
                false => self.code_at(at, &slice, load, distance),
            };
            match result {
                Ok(pieces) => {
                    return Ok(Code {
                        at,
                        pieces,
                        line: Line::of(
                            load,
                            slice.operations.iter().map(|o| o.inst.ip()).collect(),
                        ),
                        disp: load.place.disp,
                        placed: Placed {
                            kind: Kind::Gather,
                            distance,
                        },
                    });
                }
                Err(reason) => {
                    why.get_or_insert(reason);
                }
            }
        }
        Err(why.unwrap_or_else(no_register))
    }

    /// Possible places of an early load: before and after the program's own load. No other memory
    /// access may come in between, so that the page is known to be mapped.
    pub(super) fn places_near(&self, load: usize) -> Vec<usize> {
        let insns = &self.view.graph.insns;
        let block = self.view.graph.block_of(load);
        let range = &self.view.graph.blocks[block].insns;
        let address = address_registers(&insns[load].inst);
        let quiet = |i: usize| {
            insns[i].simple
                && self.view.facts.accesses[i].is_empty()
                && !self.changed(i).contains(RSP)
                && self.changed(i).0 & address.0 == 0
        };
        let mut places = vec![load];
        let before = (range.start as usize..load).rev();
        places.extend(before.take_while(|&i| quiet(i)));
        let only_reads = self.view.facts.accesses[load].iter().all(|a| !a.write);
        let own = insns[load].simple && only_reads && self.changed(load).0 & address.0 == 0;
        if own {
            for i in load + 1..range.end as usize {
                places.push(i);
                if !quiet(i) {
                    break;
                }
            }
        }
        places
    }

    fn code_at(
        &self,
        at: usize,
        slice: &AddressSlice,
        load: &Load,
        distance: u32,
    ) -> Result<Vec<Piece>, Reason> {
        let insns = &self.view.graph.insns;
        let target = &insns[load.insn].inst;
        let early = slice.early.as_ref().map(|e| (e, &insns[e.insn].inst));
        let ahead = |step: i64| step.checked_mul(i64::from(distance)).ok_or_else(too_far);
        let mut used = slice.fixed;
        for &(r, _) in &slice.steps {
            used = used.with(r);
        }
        for &(r, _) in &slice.sums {
            used = used.with(r);
        }
        used.0 |= early.map_or(0, |(_, inst)| address_registers(inst).0);
        let free = RegSet(self.free(at).0 & !used.0).without(RSP);
        let mut names = Names::of(slice, address_registers(target), free);
        let mut code = Assembly::default();
        let mut bytes = 0;
        if let Some((early, inst)) = early {
            bytes = ahead(early.stride)?;
            let scratch = cheapest(names.free).ok_or_else(no_register)?;
            code.stay_on_page(scratch, operand(inst), bytes, early.size)?;
        }
        for &(r, step) in &slice.steps {
            let to = names.take(r)?;
            let from = MemoryOperand::new(
                wide(r),
                Register::None,
                1,
                ahead(step)?,
                8,
                false,
                Register::None,
            );
            code.lea(to, moved(from, 0)?)?;
        }
        for &(r, by) in &slice.sums {
            let to = names.take(r)?;
            let factor = distance.min(MAX_FACTOR);
            code.lea(to, sum(r, by, factor))?;
            if distance > MAX_FACTOR {
                code.lea(to, sum(to, by, factor))?;
            }
        }
        for (n, operation) in slice.operations.iter().enumerate() {
            let is_early = early.is_some_and(|(_, inst)| inst.ip() == operation.inst.ip());
            let add = if is_early { bytes } else { 0 };
            put(&mut code, n, operation, &mut names, add)?;
        }
        let mut place = operand(target);
        for r in address_registers(target).iter() {
            if let Some(new) = names.get(r) {
                place = with_placeholder(place, r, new);
            }
        }
        code.prefetch(without_placeholders(place))?;
        code.finish()
    }
}

/// Replaces a register by another one that will not be replaced again: such registers have 512-bit
/// names until [`without_placeholders`].
fn with_placeholder(mut place: MemoryOperand, from: Gpr, to: Gpr) -> MemoryOperand {
    for register in [&mut place.base, &mut place.index] {
        if gpr(*register) == Some(from) {
            let offset = if register.is_gpr32() { 16 } else { 0 };
            *register = Register::ZMM0 + offset + u32::from(to.0);
        }
    }
    place
}

fn without_placeholders(mut place: MemoryOperand) -> MemoryOperand {
    for register in [&mut place.base, &mut place.index] {
        if register.is_zmm() {
            let number = register.number() as u32;
            *register = match number {
                0..16 => Register::RAX + number,
                _ => Register::EAX + (number - 16),
            };
        }
    }
    place
}

fn too_far() -> Reason {
    "the distance in bytes does not fit the instruction's displacement of 32 bits".into()
}

/// The distance at which an early load mostly stays on the same page.
fn on_one_page(early: &Early, distance: u32) -> Result<u32, Reason> {
    let most = (MAX_BYTES_AHEAD - early.size) / early.stride.checked_abs().ok_or_else(too_far)?;
    let distance = distance.min(u32::try_from(most).unwrap_or(0));
    match distance {
        0 => Err(format!(
            "the elements from which its address comes lie {} bytes apart, so that the next one is mostly on another page, which may not be there",
            early.stride
        )
        .into()),
        _ => Ok(distance),
    }
}

/// Appends an operation on the registers that hold the values ahead. `add`: bytes by which its load
/// is ahead.
fn put(
    code: &mut Assembly,
    number: usize,
    operation: &Operation,
    names: &mut Names,
    add: i64,
) -> Result<(), Reason> {
    let mut inst = operation.inst;
    let failed = || Reason::from("an instruction of its address cannot be encoded again");
    // Sources come first, since the destination may replace one.
    let first_source = if operation.is_test() { 0 } else { 1 };
    for n in first_source..inst.op_count() {
        if inst.op_kind(n) == OpKind::Register
            && let Some(new) = gpr(inst.op_register(n)).and_then(|r| names.get(r))
        {
            let register = sized(inst.op_register(n), new).ok_or_else(failed)?;
            inst.set_op_register(n, register);
        }
    }
    if operation.is_test() {
        names.release(number, operation);
        return code.put(&inst);
    }
    let has_memory = (1..inst.op_count()).any(|n| inst.op_kind(n) == OpKind::Memory);
    if has_memory && !inst.is_ip_rel_memory_operand() {
        let mut place = operand(&inst);
        if !operation.loads {
            for r in address_registers(&inst).iter() {
                if let Some(new) = names.get(r) {
                    place = with_placeholder(place, r, new);
                }
            }
            place = without_placeholders(place);
        }
        set_operand(&mut inst, moved(place, add)?);
    }
    let to = match (operation.updates, names.get(operation.to)) {
        (_, Some(own)) => own,
        (false, None) => {
            names.release(number, operation);
            names.take(operation.to)?
        }
        (true, None) => {
            let to = names.take(operation.to)?;
            code.copy(to, operation.to)?;
            to
        }
    };
    names.release(number, operation);
    // (`xor r, r` has the register twice.)
    if !operation.updates && operation.reads == RegSet::EMPTY && !has_memory {
        for n in 1..inst.op_count() {
            if inst.op_kind(n) == OpKind::Register {
                let register = sized(inst.op_register(n), to).ok_or_else(failed)?;
                inst.set_op_register(n, register);
            }
        }
    }
    let register = sized(inst.op0_register(), to).ok_or_else(failed)?;
    inst.set_op0_register(register);
    let is_same =
        inst.code() == iced_x86::Code::Mov_r64_rm64 || inst.code() == iced_x86::Code::Mov_rm64_r64;
    if is_same && inst.op1_kind() == OpKind::Register && inst.op1_register() == register {
        return Ok(());
    }
    code.put(&inst)
}

fn set_operand(inst: &mut Instruction, place: MemoryOperand) {
    inst.set_memory_base(place.base);
    inst.set_memory_index(place.index);
    inst.set_memory_displacement64(place.displacement as u64);
    inst.set_memory_displ_size(place.displ_size);
}
