//! Choice of the records that each function gets, and their places.
//!
//! A block is cut into regions: after calls, system calls, interrupts and repeated string
//! instructions, and before the slots of a region would run out. A load whose address is a recorded
//! value plus a constant ([`crate::plan::affine`]) needs no record of its own.
//!
//! Constant loads take no record if their region has another one; else the first of them is the
//! proxy.
//!
//! In the soft flavour a record shares the slot of the previous one
//! ([`ID_PAIR`](mgz_abi::slot::ID_PAIR)) if both hold addresses or parts of them, with 48 bits
//! each. If the second's value is known at the first's place, it is written there (`slot_pairing`),
//! otherwise at its own place.

pub mod affine;
pub(crate) mod constant_folding;
pub(crate) mod copies;
pub(crate) mod count_only;
pub mod cursor;
pub(crate) mod function_plan;
pub(crate) mod open_record;
pub mod origin;
pub mod planned_function;
pub(crate) mod slot_pairing;
pub mod types;

use crate::analyze::class::Class;
use crate::ir::cfg::Cfg;
use crate::plan::affine::{Differences, Registers, at_starts};
use crate::plan::cursor::Residencies;
use crate::plan::function_plan::FunctionPlan;
use crate::plan::open_record::{Open, RecordContent};
use crate::plan::types::{
    GatherPlan, ImplicitLoads, Payload, RecordPlan, RegionPlan, SitePlan, VectorHalf,
};
use crate::program::InstrumentOptions;
use crate::x86::effects::Facts;
use crate::x86::insn::{Insn, InsnId};
use crate::x86::operands::{
    AccessList, AccessSegment, Accesses, COUNT_REGISTER, EffectiveAddress, Form, OperandAccess,
    is_repeated_string,
};
use crate::x86::regs::{Gpr, RAX, RBX, RSP, RegSet, RegUse};
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, Register};
use mgz_annotations_schema::sidecar::{CLASS_CONSTANT, NO_RECORD, SiteFlags, SiteKind, reason};
use smallvec::SmallVec;

/// Facts of one instruction.
struct InsnFacts<'a> {
    at: InsnId,
    insn: &'a Insn,
    uses: &'a RegUse,
    /// The register that may hold the address of its access.
    own: Option<Gpr>,
    list: &'a Accesses,
}

/// An access whose address is to be recorded.
struct Operand<'a> {
    at: InsnId,
    inst: &'a Instruction,
    access: &'a OperandAccess,
    /// Record of the pointer, if the instruction repeats, and the constant to add.
    pointer: Option<(u8, i64)>,
    /// Record of the count, and the constant to add.
    count: Option<(u8, i64)>,
    /// True if a probe can compute the address.
    can_address: bool,
}

/// Maximum number of slots for one instruction's records.
const MAX_SLOTS: usize = 10;

/// Plans a function. `accesses`: those of `facts`, perhaps with copies. `classify` gives the class
/// of an access by block, instruction, and number in `accesses`.
pub fn plan_function(
    graph: &Cfg,
    facts: &Facts,
    accesses: &AccessList,
    options: &InstrumentOptions,
    residencies: &Residencies,
    mut classify: impl FnMut(usize, usize, usize, &OperandAccess) -> Class,
) -> FunctionPlan {
    let Facts { uses, own, .. } = facts;
    let backward = may_run_backward(graph, accesses);
    let most = accesses.insns().len().min(graph.blocks.len());
    let mut plan = FunctionPlan {
        regions: Vec::with_capacity(most),
        ..FunctionPlan::default()
    };
    let mut builder = Builder::new(options, backward);
    let starts =
        may_share(graph, accesses, options.stores).then(|| at_starts(graph, uses, backward));
    let mut piece = 0;
    let mut ends = Vec::with_capacity(graph.blocks.len());
    for (number, block) in graph.blocks.iter().enumerate() {
        // Register values are tracked only up to the last access that needs them.
        let mut known = None;
        builder.closed = 0;
        let mut first = None;
        for i in block.insns.start as usize..block.insns.end as usize {
            let insn = &graph.insns[i];
            if uses[i].clobber.contains(RSP) {
                count_implicit(&insn.inst, &mut plan.implicit);
            }
            let list = &accesses[i];
            let mut may_skip = false;
            if !list.is_empty() {
                while residencies
                    .starts()
                    .get(piece + 1)
                    .is_some_and(|&start| start <= i as u32)
                {
                    piece += 1;
                }
                builder.scratch = residencies
                    .at(residencies.of(piece))
                    .is_some_and(|s| s.scratch.is_some());
                if list.iter().any(|a| asks_registers(a, options.stores)) {
                    let from = *known.get_or_insert_with(|| {
                        builder.registers.start(
                            starts
                                .as_ref()
                                .map_or(&Differences::NONE, |starts| starts.at(number)),
                        );
                        block.insns.start as usize
                    });
                    builder
                        .registers
                        .advance(&graph.insns[from..i], &uses[from..i]);
                    known = Some(i);
                }
                if builder.slots + MAX_SLOTS > mgz_abi::slot::MAX_REGION_SLOTS {
                    first = first.or(builder.close(&mut plan.regions));
                }
                // These instructions may read nothing, and then no row could stand for implied
                // loads.
                may_skip = may_read_nothing(&insn.inst, list);
                if may_skip && builder.region.records.is_empty() {
                    first = first.or(builder.close(&mut plan.regions));
                }
                if options.stores || list.iter().any(|a| a.read) {
                    let facts = InsnFacts {
                        at: InsnId(i as u32),
                        insn,
                        uses: &uses[i],
                        own: own[i],
                        list,
                    };
                    builder
                        .instruction(&facts, &mut plan.gathers, |n, a| classify(number, i, n, a));
                }
            }
            if !insn.simple && ends_region(insn) || may_skip {
                first = first.or(builder.close(&mut plan.regions));
            }
        }
        let last = builder.close(&mut plan.regions);
        let closed = |end: Option<Closed>| end.map(|c| c.region);
        ends.push(crate::plan::constant_folding::Ends {
            first: closed(first.or(last).filter(|c| c.nth == 0)),
            last: closed(last),
            one: builder.closed == 1,
        });
    }
    if !options.naive {
        crate::plan::constant_folding::fold(graph, &mut plan, &ends, &builder.proxies);
    }
    plan
}

/// True if string instructions of a function may run backward.
fn may_run_backward(graph: &Cfg, accesses: &AccessList) -> bool {
    // Only for string instructions does the direction matter.
    let strings = accesses.iter().any(|a| match a.form {
        Form::Step { .. } | Form::Repeated { .. } | Form::Unknown => true,
        Form::Plain(_) | Form::Gather { .. } | Form::Bits { .. } | Form::Table => false,
    });
    strings && graph.insns.iter().any(|i| i.inst.code() == Code::Std)
}

/// True if an access may need register values. It does not if it has no site, or if it is a
/// Constant load, which takes no record except as a proxy.
fn asks_registers(access: &OperandAccess, stores: bool) -> bool {
    let is_constant = matches!(&access.form, Form::Plain(place) if place.is_constant());
    (access.read || stores) && !(is_constant && !(access.write && stores))
}

/// True if values shared by registers at some block's start may matter: an access needs two
/// registers there.
fn may_share(graph: &Cfg, accesses: &AccessList, stores: bool) -> bool {
    let mut with_accesses = accesses.insns();
    graph.blocks.iter().any(|block| {
        let mut registers = 0;
        while let Some((&insn, behind)) = with_accesses
            .split_first()
            .filter(|(insn, _)| **insn < block.insns.end)
        {
            with_accesses = behind;
            for access in accesses[insn as usize]
                .iter()
                .filter(|a| asks_registers(a, stores))
            {
                registers += match &access.form {
                    Form::Plain(place) if place.index.is_none() => 1,
                    _ => 2,
                };
            }
        }
        registers > 1
    })
}

/// A region that has sites.
#[derive(Clone, Copy)]
struct Closed {
    /// Its number.
    region: usize,
    /// Number of region ends earlier in the block. Regions without sites count too.
    nth: usize,
}

/// True for repeated string instructions and copies, whose count may be zero, and for gathers,
/// whose mask may be empty.
fn may_read_nothing(inst: &Instruction, list: &Accesses) -> bool {
    let is_counted =
        |a: &OperandAccess| matches!(a.form, Form::Gather { .. } | Form::Repeated { .. });
    is_repeated_string(inst) || list.iter().any(is_counted)
}

#[inline(always)]
fn ends_region(insn: &Insn) -> bool {
    match insn.flow {
        FlowControl::Next => {
            matches!(
                insn.inst.code(),
                Code::Wrfsbase_r32 | Code::Wrfsbase_r64 | Code::Hlt
            ) || is_repeated_string(&insn.inst)
        }
        FlowControl::ConditionalBranch
        | FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return => false,
        _ => true,
    }
}

/// Counts the implicit loads of an instruction that moves the stack pointer.
fn count_implicit(inst: &Instruction, implicit: &mut ImplicitLoads) {
    match inst.mnemonic() {
        Mnemonic::Pop | Mnemonic::Popf | Mnemonic::Popfq => implicit.pops += 1,
        Mnemonic::Ret | Mnemonic::Retf => implicit.rets += 1,
        Mnemonic::Leave => implicit.leaves += 1,
        _ => {}
    }
}

/// Sources of the parts of a site's formula.
#[derive(Clone, Copy, Debug)]
struct Formula {
    a: u8,
    b: u8,
    scale: u8,
    disp: i64,
    flags: u8,
}

impl Formula {
    const NONE: Formula = Formula {
        a: NO_RECORD,
        b: NO_RECORD,
        scale: 1,
        disp: 0,
        flags: 0,
    };

    fn of_base(a: u8, disp: i64) -> Formula {
        Formula {
            a,
            disp,
            ..Formula::NONE
        }
    }
}

/// A site that only needs some record in its region.
struct Waiting {
    site: usize,
    place: EffectiveAddress,
    insn: InsnId,
    can_address: bool,
}

struct Builder<'a> {
    options: &'a InstrumentOptions,
    backward: bool,
    registers: Registers,
    region: RegionPlan,
    held: Vec<RecordContent>,
    slots: usize,
    waiting: Vec<Waiting>,
    /// True if an address costs no more than its two registers: its probe need not borrow a
    /// register for it.
    address_is_cheap: bool,
    /// True if the current residency has a register for addresses.
    scratch: bool,
    /// [`Insn::dead`] of the current instruction.
    dead: RegSet,
    open: Option<Open>,
    /// True for each record of the region that needs all 64 bits.
    whole: Vec<bool>,
    /// True for each region that has only Constant loads, one of them a proxy.
    proxies: Vec<bool>,
    /// Number of region ends in this block so far.
    closed: usize,
}

impl<'a> Builder<'a> {
    fn new(options: &'a InstrumentOptions, backward: bool) -> Builder<'a> {
        Builder {
            options,
            backward,
            registers: Registers::new(backward),
            region: RegionPlan::default(),
            held: Vec::new(),
            slots: 0,
            waiting: Vec::new(),
            address_is_cheap: true,
            scratch: false,
            dead: RegSet::EMPTY,
            open: None,
            whole: Vec::new(),
            proxies: Vec::new(),
            closed: 0,
        }
    }

    /// Adds a record at an instruction about its own operand, which needs all 64 bits.
    fn add_whole(&mut self, at: InsnId, after: bool, payload: Payload) -> u8 {
        self.open = None;
        self.push(
            RecordPlan {
                at,
                after,
                of: at,
                payload,
                second: false,
            },
            RecordContent::Other,
            true,
        )
    }

    /// Adds a record of an address or a part of one.
    fn add_record(&mut self, at: InsnId, payload: Payload, held: RecordContent) -> u8 {
        if let Some(open) = self.open.take() {
            let (place, held) = match crate::plan::slot_pairing::at(&open, at, payload, held) {
                Some(held) => (open.at, held),
                None => (at, held),
            };
            return self.push(
                RecordPlan {
                    at: place,
                    after: false,
                    of: at,
                    payload,
                    second: true,
                },
                held,
                false,
            );
        }
        let may_pair =
            self.options.flavour == mgz_abi::module_note::FLAVOUR_SOFT && !self.options.naive;
        self.open = may_pair.then(|| Open {
            at,
            registers: self.registers.all(),
            dead: self.dead,
            address_is_cheap: self.address_is_cheap,
        });
        self.push(
            RecordPlan {
                at,
                after: false,
                of: at,
                payload,
                second: false,
            },
            held,
            false,
        )
    }

    fn push(&mut self, record: RecordPlan, held: RecordContent, whole: bool) -> u8 {
        self.slots += usize::from(!record.second);
        self.region.records.push(record);
        self.held.push(held);
        self.whole.push(whole);
        (self.region.records.len() - 1) as u8
    }

    /// A record that holds the register, or its symbol plus another constant: `(record, constant to
    /// add)`.
    fn find_register(&self, r: Gpr) -> Option<(u8, i64)> {
        if self.options.naive {
            return None;
        }
        let now = self.registers.value(r);
        self.held.iter().enumerate().find_map(|(i, h)| match h {
            RecordContent::Register(k) if k.symbol == now.symbol => {
                Some((i as u8, now.delta.wrapping_sub(k.delta)))
            }
            _ => None,
        })
    }

    fn register(&mut self, at: InsnId, r: Gpr) -> (u8, i64) {
        match self.find_register(r) {
            Some(found) => found,
            None => {
                let now = self.registers.value(r);
                let record = self.add_record(at, Payload::Reg(r), RecordContent::Register(now));
                match self.held[usize::from(record)] {
                    RecordContent::Register(k) => (record, now.delta.wrapping_sub(k.delta)),
                    _ => (record, 0),
                }
            }
        }
    }

    /// Like [`Builder::register`], but the value is no part of an address, so all of its bits are
    /// needed.
    fn whole_register(&mut self, at: InsnId, r: Gpr) -> (u8, i64) {
        match self.find_register(r) {
            Some(found) if self.whole[usize::from(found.0)] => found,
            _ => (self.new_register(at, r), 0),
        }
    }

    fn new_register(&mut self, at: InsnId, r: Gpr) -> u8 {
        let now = self.registers.value(r);
        let record = self.add_whole(at, false, Payload::Reg(r));
        self.held[usize::from(record)] = RecordContent::Register(now);
        record
    }

    /// Makes or finds the records for an address.
    fn address(
        &mut self,
        at: InsnId,
        place: &EffectiveAddress,
        can_address: bool,
    ) -> Result<Formula, u8> {
        if place.segment == AccessSegment::Gs {
            return Err(reason::SEGMENT);
        }
        if place.segment == AccessSegment::Fs || place.addr32 {
            if !can_address {
                return Err(reason::NO_REGISTER);
            }
            let a = self.add_record(at, Payload::Address, RecordContent::Other);
            let flags = if place.addr32 { SiteFlags::ADDR32 } else { 0 };
            return Ok(Formula {
                a,
                flags,
                ..Formula::NONE
            });
        }
        let disp = place.disp;
        Ok(match (place.base, place.index) {
            (None, None) => Formula {
                disp,
                flags: SiteFlags::STATIC,
                ..Formula::NONE
            },
            (Some(base), None) => {
                let (a, add) = self.register(at, base);
                Formula::of_base(a, disp.wrapping_add(add))
            }
            (None, Some(index)) => {
                let (b, add) = self.register(at, index);
                let disp = disp.wrapping_add(add.wrapping_mul(i64::from(place.scale)));
                Formula {
                    b,
                    scale: place.scale,
                    disp,
                    ..Formula::NONE
                }
            }
            (Some(base), Some(index)) => self.two_registers(at, place, base, index, can_address),
        })
    }

    fn two_registers(
        &mut self,
        at: InsnId,
        place: &EffectiveAddress,
        base: Gpr,
        index: Gpr,
        can_address: bool,
    ) -> Formula {
        let scale = place.scale;
        let (vb, vi) = (self.registers.value(base), self.registers.value(index));
        let total = place
            .disp
            .wrapping_add(vb.delta)
            .wrapping_add(vi.delta.wrapping_mul(i64::from(scale)));
        let shared = self.held.iter().enumerate().find_map(|(i, h)| match *h {
            RecordContent::Sum {
                base,
                index,
                scale: s,
                delta,
                ..
            } if base == vb.symbol && index == vi.symbol && s == scale => {
                Some((i as u8, total.wrapping_sub(delta)))
            }
            _ => None,
        });
        if let Some((a, disp)) = shared.filter(|_| !self.options.naive) {
            return Formula::of_base(a, disp);
        }
        let parts_known = self.find_register(base).is_some()
            || self.find_register(index).is_some()
            || vb.symbol == vi.symbol;
        if can_address && !parts_known && self.address_is_cheap {
            let held = RecordContent::Sum {
                base: vb.symbol,
                index: vi.symbol,
                scale,
                delta: total,
                registers: [(base, vb), (index, vi)],
            };
            let a = self.add_record(at, Payload::Address, held);
            let disp = match self.held[usize::from(a)] {
                RecordContent::Sum { delta, .. } => total.wrapping_sub(delta),
                _ => 0,
            };
            return Formula::of_base(a, disp);
        }
        let (a, add_a) = self.register(at, base);
        let (b, add_b) = self.register(at, index);
        let disp = place
            .disp
            .wrapping_add(add_a)
            .wrapping_add(add_b.wrapping_mul(i64::from(scale)));
        Formula {
            a,
            b,
            scale,
            disp,
            flags: 0,
        }
    }

    /// Plans the sites of an instruction.
    fn instruction(
        &mut self,
        facts: &InsnFacts,
        gathers: &mut Vec<GatherPlan>,
        mut classify: impl FnMut(usize, &OperandAccess) -> Class,
    ) {
        let &InsnFacts {
            at,
            insn,
            uses,
            own,
            list,
        } = facts;
        let pt = self.options.flavour == mgz_abi::module_note::FLAVOUR_PT;
        self.dead = insn.dead;
        let free = insn.dead != RegSet::EMPTY;
        let can_address = !pt || free || own.is_some();
        // A soft probe needs a register for the cursor and one for the address. Borrowing the
        // second adds a store and a load to a loop-carried dependence through it; two records are
        // cheaper.
        let usable = RegSet(insn.dead.0 & !uses.kill.0 & !uses.clobber.0 | insn.own.0);
        self.address_is_cheap =
            pt || self.scratch || usable.iter().nth(1).is_some() && usable.0 & !uses.read.0 != 0;
        let (pointers, count) = self.repeat_registers(at, list);
        for (n, access) in list.iter().enumerate() {
            for store in [false, true] {
                let wanted = if store {
                    access.write && self.options.stores
                } else {
                    access.read
                };
                if !wanted {
                    continue;
                }
                let class = classify(n, access);
                let mut site = SitePlan::of(at, access, class, store);
                let can_address = can_address
                    && (free
                        || !pt
                        || !matches!(access.form, Form::Plain(p) if p.segment == AccessSegment::Fs));
                let operand = Operand {
                    at,
                    inst: &insn.inst,
                    access,
                    pointer: pointers[n],
                    count,
                    can_address,
                };
                match self.formula(&operand, &mut site, gathers) {
                    Ok(f) => {
                        (site.a, site.b, site.scale, site.disp) = (f.a, f.b, f.scale, f.disp);
                        site.flags |= f.flags;
                    }
                    Err(why) => {
                        site.flags |= SiteFlags::UNRECORDED;
                        site.reason = why;
                    }
                }
                self.region.sites.push(site);
            }
        }
    }

    /// Records the registers of an instruction that repeats: the pointer of each access, and the
    /// count.
    fn repeat_registers(
        &mut self,
        at: InsnId,
        list: &Accesses,
    ) -> ([Option<(u8, i64)>; 3], Option<(u8, i64)>) {
        // For both operands of a comparing string instruction, the count is recorded once, after
        // both pointers.
        let repeats = list
            .iter()
            .any(|a| matches!(a.form, Form::Repeated { .. }) && (a.read || self.options.stores));
        let mut pointers = [None; 3];
        if !repeats || self.backward {
            return (pointers, None);
        }
        for (n, access) in list.iter().enumerate() {
            if let Form::Repeated { pointer, .. } = access.form
                && (access.read || self.options.stores)
            {
                pointers[n] = Some(self.register(at, pointer));
            }
        }
        let until = list
            .iter()
            .any(|a| matches!(a.form, Form::Repeated { until: true, .. }));
        let register = list.iter().find_map(|a| match a.form {
            Form::Repeated { count, .. } => Some(count),
            _ => None,
        });
        let count = if until {
            let b = self.new_register(at, COUNT_REGISTER);
            self.add_whole(at, true, Payload::Reg(COUNT_REGISTER));
            (b, 0)
        } else {
            self.whole_register(at, register.unwrap_or(COUNT_REGISTER))
        };
        (pointers, Some(count))
    }

    /// Makes the address formula of a site, or returns the reason why there is none.
    fn formula(
        &mut self,
        operand: &Operand,
        site: &mut SitePlan,
        gathers: &mut Vec<GatherPlan>,
    ) -> Result<Formula, u8> {
        let &Operand {
            at,
            inst,
            access,
            pointer,
            count,
            can_address,
        } = operand;
        if access.size == 0 {
            return Err(reason::UNSUPPORTED);
        }
        match access.form {
            Form::Plain(place) => {
                let is_static = place.base.is_none()
                    && place.index.is_none()
                    && place.segment == AccessSegment::Flat
                    && !place.addr32;
                let store = site.flags & SiteFlags::STORE != 0;
                if place.segment != AccessSegment::Gs
                    && (site.class == CLASS_CONSTANT && !store || is_static)
                {
                    self.waiting.push(Waiting {
                        site: self.region.sites.len(),
                        place,
                        insn: at,
                        can_address,
                    });
                    let flags = if is_static { SiteFlags::STATIC } else { 0 };
                    let disp = if is_static { place.disp } else { 0 };
                    return Ok(Formula {
                        flags,
                        disp,
                        ..Formula::NONE
                    });
                }
                self.address(at, &place, can_address)
            }
            Form::Step { .. } | Form::Repeated { .. } if self.backward => Err(reason::DIRECTION),
            Form::Step { pointer } => self.address(at, &EffectiveAddress::at(pointer), can_address),
            Form::Repeated { until, .. } => {
                let (Some((a, add)), Some((b, add_b))) = (pointer, count) else {
                    return Err(reason::UNSUPPORTED);
                };
                if add_b != 0 {
                    return Err(reason::UNSUPPORTED);
                }
                site.kind = if until {
                    SiteKind::StringUntil
                } else {
                    SiteKind::String
                };
                Ok(Formula {
                    a,
                    b,
                    disp: add,
                    ..Formula::NONE
                })
            }
            Form::Table => {
                site.kind = SiteKind::Xlat;
                let (a, add) = self.register(at, RBX);
                let (b, add_b) = self.register(at, RAX);
                if add_b == 0 {
                    Ok(Formula {
                        a,
                        b,
                        disp: add,
                        ..Formula::NONE
                    })
                } else {
                    Err(reason::UNSUPPORTED)
                }
            }
            Form::Bits { place, offset } => self.bits(operand, &place, offset, site),
            Form::Gather { place, .. } => self.gather(at, inst, place, site, gathers),
            Form::Unknown => Err(reason::UNSUPPORTED),
        }
    }

    /// The formula of an instruction on one bit of a bit string.
    fn bits(
        &mut self,
        operand: &Operand,
        place: &EffectiveAddress,
        offset: Gpr,
        site: &mut SitePlan,
    ) -> Result<Formula, u8> {
        let &Operand {
            at, can_address, ..
        } = operand;
        if place.segment != AccessSegment::Flat
            || place.addr32
            || !can_address && place.index.is_some()
        {
            return Err(if place.segment == AccessSegment::Flat {
                reason::UNSUPPORTED
            } else {
                reason::SEGMENT
            });
        }
        site.kind = SiteKind::BitString;
        let b = self.new_register(at, offset);
        let f = if place.index.is_some() {
            let a = self.add_whole(at, false, Payload::Address);
            Formula { a, ..Formula::NONE }
        } else {
            self.address(at, place, can_address)?
        };
        Ok(Formula { b, ..f })
    }

    fn gather(
        &mut self,
        at: InsnId,
        inst: &Instruction,
        place: EffectiveAddress,
        site: &mut SitePlan,
        gathers: &mut Vec<GatherPlan>,
    ) -> Result<Formula, u8> {
        if place.segment != AccessSegment::Flat {
            return Err(reason::SEGMENT);
        }
        let index_bytes = inst.memory_index().size();
        let masked = inst.op_mask() != Register::None;
        let data = inst.op0_register();
        if self.options.flavour == mgz_abi::module_note::FLAVOUR_PT
            || !data.is_vector_register()
            || site.size == 0
        {
            return Err(reason::UNSUPPORTED);
        }
        let wide = inst.is_vsib64();
        let lanes = (data.size() / site.size as usize).min(index_bytes / if wide { 8 } else { 4 });
        site.kind = SiteKind::Gather;
        if wide {
            site.flags |= SiteFlags::INDEX64;
        }
        let mask_bytes = if masked { 0 } else { site.size as u8 };
        gathers.push(GatherPlan {
            insn: at,
            lanes: lanes as u8,
            mask_bytes,
            index_bytes: index_bytes as u16,
        });
        let a = self.add_whole(at, false, Payload::Address);
        self.vector(at, inst.memory_index());
        if masked {
            self.add_whole(at, false, Payload::Mask(inst.op_mask().number() as u8));
        } else {
            self.vector(at, inst.op2_register());
        }
        Ok(Formula {
            a,
            scale: place.scale,
            ..Formula::NONE
        })
    }

    fn vector(&mut self, at: InsnId, register: Register) {
        let (vector, bytes) = (register.number() as u8, register.size() as u8);
        for half in 0..bytes / 8 {
            self.add_whole(
                at,
                false,
                Payload::Half(VectorHalf {
                    vector,
                    bytes,
                    half,
                }),
            );
        }
    }

    /// Ends the region, and returns it if it has sites. Waiting sites become implied (or need
    /// nothing). If there is no record, the first of them gets one.
    fn close(&mut self, regions: &mut Vec<RegionPlan>) -> Option<Closed> {
        let nth = self.closed;
        self.closed += 1;
        // Many regions are empty.
        if self.region.sites.is_empty() && self.region.records.is_empty() {
            return None;
        }
        // (The memory of these lists is reused.)
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut proxy = None;
        if self.region.records.is_empty() {
            for (n, w) in waiting.iter().enumerate() {
                if self.make_proxy(w) {
                    proxy = Some(n);
                    break;
                }
            }
        }
        let alone = self.region.records.is_empty();
        for (n, w) in waiting.iter().enumerate() {
            let site = &mut self.region.sites[w.site];
            if alone {
                site.flags |= SiteFlags::UNRECORDED;
                site.reason = reason::NO_REGISTER;
            } else if proxy != Some(n)
                && site.class == CLASS_CONSTANT
                && site.flags & SiteFlags::STORE == 0
            {
                site.flags |= SiteFlags::IMPLIED;
                self.region.implied_const += 1;
            }
        }
        let closed = (!self.region.sites.is_empty()).then(|| {
            let constant = |s: &SitePlan| {
                s.class == CLASS_CONSTANT
                    && s.flags & (SiteFlags::STORE | SiteFlags::UNRECORDED) == 0
            };
            self.proxies
                .push(proxy.is_some() && self.region.sites.iter().all(constant));
            // (Copies have the exact size, while growing reallocates.)
            let RegionPlan {
                records,
                sites,
                implied_const,
            } = &self.region;
            regions.push(RegionPlan {
                records: SmallVec::from_slice(records),
                sites: SmallVec::from_slice(sites),
                implied_const: *implied_const,
            });
            Closed {
                region: regions.len() - 1,
                nth,
            }
        });
        self.region.records.clear();
        self.region.sites.clear();
        self.region.implied_const = 0;
        waiting.clear();
        self.waiting = waiting;
        self.held.clear();
        self.whole.clear();
        self.open = None;
        self.slots = 0;
        closed
    }

    /// Gives the region its only record. Register values may have changed since, so nothing is
    /// shared.
    fn make_proxy(&mut self, w: &Waiting) -> bool {
        let place = &w.place;
        let site = &mut self.region.sites[w.site];
        let payload = match (place.base, place.index) {
            _ if place.segment == AccessSegment::Fs || place.addr32 => Payload::Address,
            (None, None) => Payload::Nothing,
            (Some(base), None) => {
                site.disp = place.disp;
                Payload::Reg(base)
            }
            _ => Payload::Address,
        };
        if payload == Payload::Address && !w.can_address {
            return false;
        }
        if payload != Payload::Nothing {
            site.a = 0;
        }
        if place.addr32 {
            site.flags |= SiteFlags::ADDR32;
        }
        self.add_whole(w.insn, false, payload);
        true
    }
}
