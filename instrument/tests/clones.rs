//! Takes rewritten files apart with tools that share nothing with the emitter: every clone
//! instruction is decoded, every probe is interpreted, and the claims of the address map and the
//! unwind tables are compared with the code's effects.
//!
//! The files are the test program itself (thousands of functions) and, where they are installed,
//! some stripped programs of the system.

use gimli::{BaseAddresses, EhFrame, LittleEndian, UnwindContext, UnwindSection};
use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register, RflagsBits,
};
use mgz_abi::address_map::{AddrMap, Step};
use mgz_abi::address_map::{NO_REG, ProbeState, STATE_HALF, STATE_LATE};
use mgz_abi::module_note::{FLAVOUR_PT, FLAVOUR_SOFT};
use mgz_abi::probe::{GS_CALL, GS_CURSOR, GS_JUMP, GS_SPILL, PLACE_TARGET};
use mgz_abi::slot::SLOT_BYTES;
use mgz_annotations_schema::Sidecar;
use mgz_elf::Elf;
use mgz_instrument::pipeline::rewrite::rewrite;
use mgz_instrument::pipeline::settings::Settings;
use mgz_instrument::program::InstrumentOptions;

struct Rewritten {
    name: String,
    original: Vec<u8>,
    file: Vec<u8>,
    sidecar: Sidecar,
    pt: bool,
}

fn inputs() -> Vec<std::path::PathBuf> {
    // A program in Rust. This test itself cannot be used: it contains names of files that give
    // access to memory, so it is declined.
    let folder = std::env::current_exe().unwrap();
    let tests = std::fs::read_dir(folder.parent().unwrap()).unwrap();
    let is_program = |p: &std::path::PathBuf| {
        let name = p.file_name().unwrap().to_string_lossy();
        name.starts_with("origins-") && p.extension().is_none()
    };
    let mut paths: Vec<_> = tests
        .map(|entry| entry.unwrap().path())
        .filter(is_program)
        .take(1)
        .collect();
    for system in [
        "/usr/bin/gzip",
        "/usr/bin/perl",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    ] {
        paths.extend(std::path::Path::new(system).exists().then(|| system.into()));
    }
    paths
}

/// All inputs, rewritten once for all tests.
fn all() -> &'static [Rewritten] {
    static ALL: std::sync::OnceLock<Vec<Rewritten>> = std::sync::OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = Vec::new();
        for path in inputs() {
            let original = std::fs::read(&path).unwrap();
            for (flavour, naive) in [
                (FLAVOUR_SOFT, false),
                (FLAVOUR_SOFT, true),
                (FLAVOUR_PT, false),
            ] {
                let options = InstrumentOptions {
                    stores: naive,
                    naive,
                    ..InstrumentOptions::new(flavour)
                };
                let done = rewrite(&original, &options, &Settings::default(), |image| {
                    image.to_bytes()
                })
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                let name = format!("{} flavour {flavour} naive {naive}", path.display());
                all.push(Rewritten {
                    name,
                    file: done.begun,
                    sidecar: done.annotations.sidecar().unwrap(),
                    original: original.clone(),
                    pt: flavour == FLAVOUR_PT,
                });
            }
        }
        all
    })
}

fn each(check: impl Fn(&Rewritten)) {
    all().iter().for_each(check);
}

/// Some of a map's functions, evenly spread; all functions of a small file.
fn sample(map: &AddrMap) -> impl Iterator<Item = usize> + use<> {
    (0..map.len()).step_by(1 + map.len() / 200)
}

fn decode(elf: &Elf, ip: u64) -> Instruction {
    let bytes = elf
        .at(ip)
        .unwrap_or_else(|| panic!("{ip:#x} is not in the file"));
    Decoder::with_ip(64, &bytes[..bytes.len().min(15)], ip, DecoderOptions::NONE).decode()
}

fn number(r: Register) -> u8 {
    r.full_register().number() as u8
}

/// Offset in the control page of a hook's target address.
const TARGET: u64 = GS_SPILL as u64 + 8 * PLACE_TARGET as u64;

/// True if an instruction passes its target to a hook.
fn calls_hook(clone: &Instruction) -> bool {
    let hook = Probe::gs(clone).and_then(|offset| u32::try_from(offset).ok());
    match clone.flow_control() {
        FlowControl::IndirectCall => hook == Some(GS_CALL),
        FlowControl::IndirectBranch => hook == Some(GS_JUMP),
        _ => false,
    }
}

/// True if an inserted instruction loads the target of an indirect call or jump into a register,
/// from the original's operand. `next`: the instruction after it.
fn takes_target(inst: &Instruction, next: &Instruction, original: &Instruction) -> bool {
    let hands_over = next.mnemonic() == Mnemonic::Mov
        && next.op0_kind() == OpKind::Memory
        && Probe::gs(next) == Some(TARGET);
    if !hands_over {
        return false;
    }
    assert_eq!(inst.mnemonic(), Mnemonic::Mov);
    assert_eq!(inst.op0_register(), next.op1_register());
    assert_eq!(inst.op_kind(1), original.op_kind(0));
    match inst.op_kind(1) {
        OpKind::Register => assert_eq!(inst.op1_register(), original.op0_register()),
        _ => {
            assert_eq!(inst.memory_base(), original.memory_base());
            assert_eq!(inst.memory_index(), original.memory_index());
            assert_eq!(inst.memory_index_scale(), original.memory_index_scale());
            let ip_rel = original.is_ip_rel_memory_operand();
            let place = |i: &Instruction| match ip_rel {
                true => i.ip_rel_memory_address(),
                false => i.memory_displacement64(),
            };
            assert_eq!(place(inst), place(original));
        }
    }
    true
}

/// Interprets inserted instructions one by one, from the map's state before them.
struct Probe {
    state: ProbeState,
    /// The register that holds the cursor.
    cursor: u8,
    slots: i64,
}

impl Probe {
    fn new(before: ProbeState) -> Probe {
        Probe {
            state: before,
            cursor: before.base_reg,
            slots: before.slots_done.into(),
        }
    }

    /// Offset in the control page, if the operand is there.
    fn gs(inst: &Instruction) -> Option<u64> {
        let plain = inst.segment_prefix() == Register::GS && inst.memory_index() == Register::None;
        let offset = if inst.is_ip_rel_memory_operand() {
            inst.ip_rel_memory_address()
        } else {
            inst.memory_displacement64()
        };
        plain.then_some(offset)
    }

    /// Applies the effect of an inserted instruction. Panics if probes never have such an
    /// instruction.
    fn inserted(&mut self, inst: &Instruction) {
        assert_eq!(
            inst.rflags_modified(),
            RflagsBits::NONE,
            "a probe changes flags"
        );
        let reads = matches!(inst.mnemonic(), Mnemonic::Ptwrite);
        assert!(
            reads || inst.op0_register().full_register() != Register::RSP,
            "a probe changes rsp"
        );
        let base = inst.memory_base();
        if let Some(offset) = Probe::gs(inst) {
            match (inst.op0_kind(), inst.mnemonic()) {
                (OpKind::Register, Mnemonic::Mov) if offset == u64::from(GS_CURSOR) => {
                    assert_eq!(inst.op0_register().size(), 4);
                    assert_eq!(
                        self.state.base_reg, NO_REG,
                        "the cursor is in a register already"
                    );
                    self.cursor = number(inst.op0_register());
                    self.state.base_reg = self.cursor;
                    self.state.base_ahead = 0;
                }
                (OpKind::Memory, Mnemonic::Mov) if offset == u64::from(GS_CURSOR) => {
                    assert_eq!(
                        number(inst.op1_register()),
                        self.cursor,
                        "commit of another register"
                    );
                    assert_eq!(
                        i64::from(self.state.base_ahead),
                        self.slots,
                        "commit of the wrong number of slots"
                    );
                    // Memory is up to date from here on.
                    self.state = ProbeState {
                        saved: self.state.saved,
                        base_reg: self.cursor,
                        ..ProbeState::IDLE
                    };
                    self.slots = 0;
                }
                // The place from which a hook takes its target.
                (OpKind::Memory, Mnemonic::Mov) if offset == TARGET => {}
                (OpKind::Memory, Mnemonic::Mov) => self.borrow(number(inst.op1_register()), offset),
                (OpKind::Register, Mnemonic::Mov) => {
                    self.give_back(number(inst.op0_register()), offset)
                }
                _ => panic!("unknown use of the control page"),
            }
            return;
        }
        let to_memory =
            inst.op0_kind() == OpKind::Memory && !matches!(inst.mnemonic(), Mnemonic::Nop);
        if to_memory {
            assert_eq!(number(base), self.cursor, "a probe writes somewhere else");
            assert_eq!(inst.memory_index(), Register::None);
            self.store(inst);
            return;
        }
        match inst.mnemonic() {
            Mnemonic::Lea
                if number(inst.op0_register()) == self.cursor
                    && self.state.base_reg == self.cursor
                    && inst.op0_register().size() == 4
                    && number(base) == self.cursor =>
            {
                let ahead = inst.memory_displacement64() as i64 / SLOT_BYTES as i64;
                if self.state.flags & STATE_LATE == 0 {
                    self.state.base_ahead = ahead as u8;
                } else {
                    assert_eq!(
                        ahead, self.slots,
                        "the cursor moves by the wrong number of slots"
                    );
                    (self.slots, self.state.slots_done) = (0, 0);
                }
            }
            Mnemonic::Lea => {}
            Mnemonic::Mov
                if inst.segment_prefix() == Register::FS && inst.memory_displacement64() == 0 => {}
            // The upper half of the value just stored.
            Mnemonic::Mov
                if number(base) == self.cursor
                    && inst.memory_displacement64() as i64 == self.slots * 16 + 8 => {}
            // The cursor moves from the register that kept it to another one.
            Mnemonic::Mov if inst.op1_kind() == OpKind::Register => {
                assert!(
                    inst.op0_register().size() == 4
                        && number(inst.op1_register()) == self.cursor
                        && self.state.base_reg == self.cursor,
                    "a move of something else"
                );
                assert!(
                    self.slots == 0 && self.state.base_ahead == 0,
                    "the cursor moves while records are in flight"
                );
                self.cursor = number(inst.op0_register());
                self.state.base_reg = self.cursor;
            }
            Mnemonic::Kmovw | Mnemonic::Nop | Mnemonic::Ptwrite => {}
            Mnemonic::Jmp => assert!(matches!(inst.op0_kind(), OpKind::NearBranch64)),
            _ if inst.is_jcc_short_or_near() => {}
            Mnemonic::Loop
            | Mnemonic::Loope
            | Mnemonic::Loopne
            | Mnemonic::Jrcxz
            | Mnemonic::Jecxz => {}
            other => panic!("unexpected probe instruction {other:?}"),
        }
    }

    fn store(&mut self, inst: &Instruction) {
        let at = inst.memory_displacement64() as i64;
        match inst.mnemonic() {
            Mnemonic::Mov if inst.op1_kind() == OpKind::Immediate32 => {
                assert_eq!(at, self.slots * 16 + 12, "id in the wrong slot");
                self.done(1);
            }
            Mnemonic::Mov => {
                assert!(
                    [0, 6].contains(&(at - self.slots * 16)),
                    "payload in the wrong slot"
                );
                assert_eq!(inst.op1_register().size(), 8);
                assert_ne!(
                    number(inst.op1_register()),
                    self.cursor,
                    "the cursor as payload"
                );
            }
            Mnemonic::Vmovdqu
            | Mnemonic::Vmovdqu64
            | Mnemonic::Vextracti128
            | Mnemonic::Vextracti32x4 => {
                assert_eq!(at, self.slots * 16, "vector in the wrong slot");
            }
            other => panic!("unexpected store {other:?}"),
        }
    }

    fn done(&mut self, slots: i64) {
        self.slots += slots;
        self.state.slots_done = self.slots as u8;
        self.state.flags &= !STATE_HALF;
    }

    fn borrow(&mut self, register: u8, offset: u64) {
        let place = (offset - u64::from(GS_SPILL)) / 8;
        assert!(
            place < 8
                && self
                    .state
                    .saved
                    .iter()
                    .all(|s| s[0] != register && s[1] != place as u8),
            "place or register taken"
        );
        let free = self
            .state
            .saved
            .iter_mut()
            .find(|s| s[0] == NO_REG)
            .unwrap();
        *free = [register, place as u8];
    }

    fn give_back(&mut self, register: u8, offset: u64) {
        let place = ((offset - u64::from(GS_SPILL)) / 8) as u8;
        let mut rest: Vec<[u8; 2]> = self
            .state
            .saved
            .iter()
            .copied()
            .filter(|s| s[0] != NO_REG)
            .collect();
        assert_eq!(
            rest.pop(),
            Some([register, place]),
            "registers come back in reverse order"
        );
        rest.resize(6, [NO_REG; 2]);
        self.state.saved.copy_from_slice(&rest);
        assert_ne!(
            self.state.base_reg, register,
            "the map counts on a register that is given back"
        );
    }

    /// Checks the map's state at a position that control reaches from here.
    fn reaches(&self, mapped: &ProbeState) {
        let mut expected = self.state;
        // Memory may become outdated from here on. It counts as up to date only after a commit.
        if mapped.flags & STATE_LATE != 0 {
            assert_ne!(mapped.base_reg, NO_REG, "nothing has the cursor");
            expected.flags |= STATE_LATE;
        }
        // The current slot has the first of two payloads.
        expected.flags |= mapped.flags & STATE_HALF;
        // The map drops the base once no later store uses it.
        if mapped.base_reg == NO_REG && mapped.base_ahead == 0 {
            expected.base_reg = NO_REG;
            expected.base_ahead = 0;
        }
        assert_eq!(*mapped, expected);
    }

    /// An original instruction must not access borrowed registers. It may overwrite the register
    /// that keeps the cursor between regions.
    fn original(&mut self, inst: &Instruction, factory: &mut InstructionInfoFactory) {
        let borrowed: Vec<u8> = self
            .state
            .saved
            .iter()
            .map(|s| s[0])
            .filter(|&r| r != NO_REG)
            .collect();
        let kept = self.state.base_reg;
        for used in factory.info(inst).used_registers() {
            if used.register().is_gpr()
                && !matches!(used.access(), OpAccess::None | OpAccess::NoMemAccess)
            {
                let register = number(used.register());
                assert!(
                    !borrowed.contains(&register),
                    "an original instruction uses a borrowed register"
                );
                if register == kept {
                    // `or r, -1` and `and r, 0` do not depend on the value that they read.
                    let sets = match inst.mnemonic() {
                        Mnemonic::Or => {
                            inst.op_count() == 2
                                && inst.try_immediate(1).is_ok_and(|v| v as u32 == u32::MAX)
                        }
                        Mnemonic::And => {
                            inst.op_count() == 2 && inst.try_immediate(1).is_ok_and(|v| v == 0)
                        }
                        _ => false,
                    };
                    let writes =
                        sets || matches!(used.access(), OpAccess::Write | OpAccess::CondWrite);
                    assert!(
                        writes && self.state.slots_done == 0 && self.state.base_ahead == 0,
                        "an original instruction uses the register of the cursor"
                    );
                    self.state.base_reg = NO_REG;
                }
            }
        }
    }
}

fn same_instruction(
    original: &Instruction,
    clone: &Instruction,
    step: &Step,
    inverse: Option<ConditionCode>,
) {
    let branch = original.is_jcc_short_or_near()
        || original.is_jmp_short_or_near()
        || original.is_call_near()
        || original.is_loop()
        || original.is_jcx_short();
    let through_pointer = original.is_call_near_indirect() || original.is_jmp_near_indirect();
    if through_pointer && calls_hook(clone) {
        assert_eq!(clone.mnemonic(), original.mnemonic());
        return;
    }
    if branch && clone.mnemonic() != original.mnemonic() {
        // The inverse of a conditional jump of another kind comes before it.
        assert!(
            original.is_loop()
                || original.is_jcx_short()
                || original.is_loopcc()
                || inverse == Some(original.condition_code())
        );
        assert_eq!(clone.mnemonic(), Mnemonic::Jmp, "at {:#x}", step.clone);
        return;
    }
    assert_eq!(
        clone.mnemonic(),
        original.mnemonic(),
        "at {:#x}",
        step.clone
    );
    assert_eq!(clone.op_count(), original.op_count());
    for op in 0..original.op_count() {
        if original.op_kind(op) == OpKind::Register {
            assert_eq!(clone.op_register(op), original.op_register(op));
        }
    }
    if original.is_ip_rel_memory_operand() {
        assert_eq!(
            clone.ip_rel_memory_address(),
            original.ip_rel_memory_address(),
            "a reference at {:#x} changed its target",
            step.clone
        );
    }
}

fn negated(inst: &Instruction) -> ConditionCode {
    let mut other = *inst;
    other.negate_condition_code();
    other.condition_code()
}

#[test]
fn the_address_map_says_what_the_code_does() {
    each(|r| {
        println!("{}", r.name);
        let (old, new) = (
            Elf::parse(&r.original).unwrap(),
            Elf::parse(&r.file).unwrap(),
        );
        let map = AddrMap::new(&r.sidecar.map).unwrap();
        let mut factory = InstructionInfoFactory::new();
        let mut steps = 0usize;
        for f in sample(&map) {
            let bounds = map.function(f).unwrap();
            let mut end = u64::from(bounds.clone_start);
            let all: Vec<Step> = map.walk(f).unwrap().collect();
            let place = |ip: u64| {
                all.binary_search_by_key(&ip, |s| s.clone)
                    .ok()
                    .map(|i| map.state(all[i].state).unwrap())
            };
            let mut inverse = None;
            for (n, step) in all.iter().enumerate() {
                steps += 1;
                assert_eq!(step.clone, end);
                end += u64::from(step.clone_len);
                let inst = decode(&new, step.clone);
                assert_eq!(
                    inst.len(),
                    usize::from(step.clone_len),
                    "length at {:#x}",
                    step.clone
                );
                let context = || {
                    format!(
                        "{} at {:#x} (original {:#x}): {inst}",
                        r.name, step.clone, step.orig
                    )
                };
                let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let mut probe = Probe::new(map.state(step.state).unwrap());
                    let behind = all.get(n + 1).map(|next| decode(&new, next.clone));
                    let takes = step.orig_len == 0
                        && behind.is_some_and(|next| {
                            takes_target(&inst, &next, &decode(&old, step.orig))
                        });
                    if takes {
                        let register = number(inst.op0_register());
                        if probe.state.base_reg == register {
                            probe.state.base_reg = NO_REG;
                        }
                    } else if step.orig_len == 0 {
                        probe.inserted(&inst);
                        assert!(r.pt || inst.mnemonic() != Mnemonic::Ptwrite);
                    } else {
                        let original = decode(&old, step.orig);
                        // An instruction is shorter only if the next one is the same without its
                        // prefixes. (Nothing follows the last instruction of a segment.)
                        let inner = usize::from(step.orig_len) < original.len() && {
                            let rest = decode(&old, step.orig + u64::from(step.orig_len));
                            rest.next_ip() == original.next_ip() && rest.code() == original.code()
                        };
                        assert!(
                            original.len() == usize::from(step.orig_len) || inner,
                            "{original}, {} bytes",
                            step.orig_len
                        );
                        same_instruction(&original, &inst, step, inverse);
                        probe.original(&inst, &mut factory);
                    }
                    let flow = inst.flow_control();
                    let stops = matches!(
                        flow,
                        FlowControl::UnconditionalBranch
                            | FlowControl::IndirectBranch
                            | FlowControl::Return
                            | FlowControl::Exception
                    );
                    if !stops && let Some(next) = all.get(n + 1) {
                        probe.reaches(&map.state(next.state).unwrap());
                    }
                    match flow {
                        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                            let to = inst.near_branch_target();
                            // Other functions are entered in the idle state.
                            let there = place(to)
                                .or_else(|| map.at_clone(to).map(|(_, state)| state))
                                .unwrap_or(ProbeState::IDLE);
                            assert!(
                                place(to).is_some() || there == ProbeState::IDLE,
                                "another function is entered elsewhere"
                            );
                            probe.reaches(&there);
                        }
                        FlowControl::Return | FlowControl::Call | FlowControl::IndirectCall => {
                            probe.reaches(&ProbeState::IDLE)
                        }
                        _ => {}
                    }
                }));
                assert!(checked.is_ok(), "{}", context());
                inverse = (step.orig_len == 0 && inst.is_jcc_short_or_near())
                    .then(|| negated(&inst))
                    .or(inverse.filter(|_| step.orig_len == 0));
            }
            assert_eq!(end, u64::from(bounds.clone_end));
        }
        assert!(steps > 500, "{}: only {steps} instructions", r.name);
    });
}

/// If a slot is completed elsewhere, its first record counts as written from the point on at which
/// a handler would find it.
#[test]
fn half_written_slots_begin_where_their_first_record_is_written() {
    let mut halves = 0;
    each(|r| {
        let map = AddrMap::new(&r.sidecar.map).unwrap();
        let apart = |pair: &&[mgz_annotations_schema::sidecar::Record]| {
            pair[1].slots == 0 && pair[0].clone_ip != pair[1].clone_ip
        };
        for pair in r.sidecar.records.windows(2).filter(apart).step_by(7) {
            let mut steps = map
                .from_clone(pair[0].clone_ip)
                .map(|step| (step.clone, map.state(step.state).unwrap()));
            let (at, written) = steps.next().unwrap();
            assert!(
                at == pair[0].clone_ip && written.flags & STATE_HALF == 0,
                "{}: {at:#x}",
                r.name
            );
            let id = steps
                .take_while(|(clone, _)| *clone <= pair[1].clone_ip)
                .inspect(|(clone, state)| {
                    assert!(state.flags & STATE_HALF != 0, "{}: {clone:#x}", r.name)
                })
                .last();
            assert_eq!(
                id.map(|(clone, _)| clone),
                Some(pair[1].clone_ip),
                "{}: the id's store",
                r.name
            );
        }
    });
    for r in all() {
        halves += r
            .sidecar
            .records
            .windows(2)
            .filter(|p| p[1].slots == 0 && p[0].clone_ip != p[1].clone_ip)
            .count();
    }
    assert!(halves > 1000, "{halves}");
}

#[test]
fn functions_are_entered_with_nothing_held() {
    each(|r| {
        let map = AddrMap::new(&r.sidecar.map).unwrap();
        for f in r.sidecar.functions.iter().filter(|f| f.clone_start != 0) {
            let (_, state) = map.at_clone(f.clone_start).unwrap();
            assert_eq!(state, ProbeState::IDLE, "{}: {:#x}", r.name, f.clone_start);
        }
    });
}

#[test]
fn branches_of_the_clone_go_where_the_original_goes() {
    each(|r| {
        let (old, new) = (
            Elf::parse(&r.original).unwrap(),
            Elf::parse(&r.file).unwrap(),
        );
        let map = AddrMap::new(&r.sidecar.map).unwrap();
        for f in sample(&map) {
            for step in map.walk(f).unwrap().filter(|s| s.orig_len > 0) {
                let (original, clone) = (decode(&old, step.orig), decode(&new, step.clone));
                if !matches!(original.op0_kind(), OpKind::NearBranch64) {
                    continue;
                }
                let (wanted, got) = (original.near_branch_target(), clone.near_branch_target());
                // A probe that ends a repeated string instruction belongs to the next one, but is
                // no jump target. A jump to dropped no-operations goes to the address after them.
                let there = map.at_clone(got).map(|(s, _)| s.orig);
                let skipped = |to: u64| {
                    (wanted..to).all(|a| map.at_original(a).is_none()) && to - wanted < 32
                };
                let right = match map.at_original(wanted) {
                    Some(_) => there == Some(wanted),
                    None => got == wanted || there.is_some_and(|to| to >= wanted && skipped(to)),
                };
                assert!(
                    right,
                    "{}: {:#x} goes to {got:#x}, not {wanted:#x}",
                    r.name, step.clone
                );
            }
        }
    });
}

#[test]
fn unwinding_works_the_same_at_every_instruction() {
    each(|r| {
        let (old, new) = (
            Elf::parse(&r.original).unwrap(),
            Elf::parse(&r.file).unwrap(),
        );
        let map = AddrMap::new(&r.sidecar.map).unwrap();
        let (Some(a), Some(b)) = (old.section(".eh_frame"), new.section(".eh_frame")) else {
            return;
        };
        let (old_frame, new_frame) = (
            EhFrame::new(old.section_bytes(a).unwrap(), LittleEndian),
            EhFrame::new(new.section_bytes(b).unwrap(), LittleEndian),
        );
        let (old_bases, new_bases) = (
            BaseAddresses::default().set_eh_frame(a.addr),
            BaseAddresses::default().set_eh_frame(b.addr),
        );
        let header = new.section(".eh_frame_hdr").unwrap();
        let hdr = gimli::EhFrameHdr::new(new.section_bytes(header).unwrap(), LittleEndian);
        let new_bases = new_bases.set_eh_frame_hdr(header.addr);
        let parsed = hdr.parse(&new_bases, 8).unwrap();
        let table = parsed.table().unwrap();
        let mut compared = 0;
        let mut old_fdes = std::collections::BTreeMap::new();
        let mut entries = old_frame.entries(&old_bases);
        while let Some(entry) = entries.next().unwrap() {
            if let gimli::CieOrFde::Fde(partial) = entry {
                let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
                old_fdes.insert(fde.initial_address(), fde);
            }
        }
        for f in sample(&map) {
            let (mut one, mut two) = (UnwindContext::new(), UnwindContext::new());
            let start = u64::from(map.function(f).unwrap().clone_start);
            let end = r
                .sidecar
                .functions
                .iter()
                .find(|f| f.clone_start == start)
                .unwrap()
                .end;
            // A jump at the end that leaves belongs to the next function. Padding (which may follow
            // a call that does not return) belongs to the code that it aligns.
            let padding =
                |s: &Step| s.orig_len == 0 && decode(&new, s.clone).mnemonic() == Mnemonic::Nop;
            for step in map.walk(f).unwrap().filter(|s| s.orig < end && !padding(s)) {
                let before = old_fdes
                    .range(..=step.orig)
                    .next_back()
                    .map(|e| e.1)
                    .filter(|e| e.contains(step.orig));
                let after = table.fde_for_address(
                    &new_frame,
                    &new_bases,
                    step.clone,
                    EhFrame::cie_from_offset,
                );
                let Some(before) = before else { continue };
                let after = after.unwrap_or_else(|e| panic!("{}: {:#x}: {e}", r.name, step.clone));
                assert_eq!(
                    before.personality().is_some(),
                    after.personality().is_some(),
                    "{}: {:#x} {:#x}",
                    r.name,
                    step.clone,
                    step.orig
                );
                let is_null = |p: gimli::Pointer| {
                    matches!(p, gimli::Pointer::Direct(0) | gimli::Pointer::Indirect(0))
                };
                // The new tables describe the original in the same way.
                let kept = table.fde_for_address(
                    &new_frame,
                    &new_bases,
                    step.orig,
                    EhFrame::cie_from_offset,
                );
                let kept = kept.unwrap_or_else(|e| panic!("{}: {:#x}: {e}", r.name, step.orig));
                let (old_lsda, new_lsda) = (
                    before.lsda().filter(|p| !is_null(*p)),
                    after.lsda().filter(|p| !is_null(*p)),
                );
                assert_eq!(
                    old_lsda.is_some(),
                    new_lsda.is_some(),
                    "{}: {:#x}: {:?} {:?}",
                    r.name,
                    step.clone,
                    before.lsda(),
                    after.lsda()
                );
                let was = before
                    .unwind_info_for_address(&old_frame, &old_bases, &mut one, step.orig)
                    .unwrap()
                    .clone();
                for (fde, at) in [(&after, step.clone), (&kept, step.orig)] {
                    let is = fde
                        .unwind_info_for_address(&new_frame, &new_bases, &mut two, at)
                        .unwrap();
                    assert_eq!(
                        format!("{:?}", was.cfa()),
                        format!("{:?}", is.cfa()),
                        "{}: {at:#x}",
                        r.name
                    );
                    for register in 0..17 {
                        let register = gimli::Register(register);
                        assert_eq!(
                            format!("{:?}", was.register(register)),
                            format!("{:?}", is.register(register)),
                            "{}: {at:#x} {register:?}",
                            r.name
                        );
                    }
                }
                compared += 1;
            }
        }
        assert!(compared > 500, "{}: {compared}", r.name);
    });
}

#[test]
fn the_input_is_kept_but_for_headers_and_entry_jumps() {
    each(|r| {
        let elf = Elf::parse(&r.original).unwrap();
        let mut kept = r.file[..r.original.len()].to_vec();
        assert_eq!(kept[..32], r.original[..32], "identity and entry point");
        kept[32..64].copy_from_slice(&r.original[32..64]);
        if r.pt {
            let map = AddrMap::new(&r.sidecar.map).unwrap();
            let new = Elf::parse(&r.file).unwrap();
            let mut jumps = 0;
            for f in r.sidecar.functions.iter().filter(|f| f.clone_start != 0) {
                for at in f.start..f.end {
                    let Some(offset) = elf.file_offset(at).map(|o| o as usize) else {
                        continue;
                    };
                    if kept
                        .get(offset..offset + 5)
                        .is_none_or(|b| b == &r.original[offset..offset + 5])
                        || kept[offset] != 0xe9
                    {
                        continue;
                    }
                    let to = decode(&new, at).near_branch_target();
                    if map
                        .at_clone(to)
                        .is_some_and(|(step, _)| (at..at + 16).contains(&step.orig))
                    {
                        // (A jump may be at a no-operation, which has no clone of its own.)
                        kept[offset..offset + 5].copy_from_slice(&r.original[offset..offset + 5]);
                        jumps += 1;
                    }
                }
            }
            assert!(jumps > 100, "{}: {jumps} entry jumps", r.name);
            // If handlers may look at faults, the linkage table's entry of `sigaction` leads into
            // the file.
            let mut led = 0;
            for at in (0..kept.len() - 6)
                .filter(|&at| r.original[at..at + 2] == [0xff, 0x25])
                .collect::<Vec<_>>()
            {
                if kept[at..at + 2] == [0x90, 0xe9] {
                    kept[at..at + 6].copy_from_slice(&r.original[at..at + 6]);
                    led += 1;
                }
            }
            assert!(led <= 1, "{}: {led} entries of linkage tables", r.name);
        }
        assert!(kept == r.original, "{}: bytes changed", r.name);
    });
}
