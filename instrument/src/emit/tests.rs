//! Checks probes with an independent decoder.

use crate::emit::*;
use crate::ir::cfg::Cfg;
use crate::ir::jump_table::JumpTable;
use crate::ir::{Block, BlockId, FunctionId};
use crate::plan::planned_function::Function;
use crate::plan::types::{Payload, RecordPlan, RegionPlan, VectorHalf};
use crate::x86::decode::make_insn;
use crate::x86::insn::{Insn, InsnId};
use crate::x86::regs::{Gpr, RegSet, RegUse, reg_use};
use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, InstructionInfoFactory};
use mgz_abi::address_map::AddrMap;
use mgz_abi::module_note::{FLAVOUR_PT, FLAVOUR_SOFT};

const START: u64 = 0x1000;

fn uses(insns: &[Insn]) -> Vec<RegUse> {
    let mut factory = InstructionInfoFactory::new();
    insns
        .iter()
        .map(|i| reg_use(factory.info(&i.inst)))
        .collect()
}

/// A function with one block per byte string, in which all registers are live except `dead`.
pub(crate) fn function(blocks: &[&[u8]], dead: RegSet) -> (Function, Vec<u8>) {
    let bytes: Vec<u8> = blocks.concat();
    let mut insns = Vec::new();
    let mut list = Vec::new();
    let mut at = START;
    for block in blocks {
        let first = insns.len() as u32;
        let mut decoder = Decoder::with_ip(64, block, at, DecoderOptions::NONE);
        while decoder.can_decode() {
            let inst = decoder.decode();
            assert!(!inst.is_invalid());
            insns.push(Insn {
                dead,
                ..make_insn(inst)
            });
        }
        at += block.len() as u64;
        list.push(Block {
            insns: first..insns.len() as u32,
            succs: Default::default(),
            preds: Default::default(),
            external_entry: false,
        });
    }
    let function = Function {
        id: FunctionId(0),
        range: START..at,
        uses: uses(&insns),
        cfg: Cfg::of_parts(insns, list),
        tables: Vec::new(),
        patching: Default::default(),
        plan: Default::default(),
        calls: Default::default(),
        residencies: Default::default(),
        insertions: Vec::new(),
        loops: Default::default(),
    };
    (function, bytes)
}

fn record(at: u32, payload: Payload) -> RecordPlan {
    RecordPlan {
        at: InsnId(at),
        after: false,
        of: InsnId(at),
        payload,
        second: false,
    }
}

fn set(registers: &[u8]) -> RegSet {
    registers.iter().fold(RegSet::EMPTY, |s, &r| s.with(Gpr(r)))
}

fn text(code: &[u8]) -> Vec<String> {
    let mut formatter = GasFormatter::new();
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut lines = Vec::new();
    while decoder.can_decode() {
        let mut line = String::new();
        formatter.format(&decoder.decode(), &mut line);
        lines.push(line);
    }
    lines
}

/// The emitted function, without rows.
fn emit(
    f: &Function,
    bytes: &[u8],
    flavour: u32,
    fixed: bool,
    translated: bool,
) -> Result<Emitted, EmitError> {
    crate::emit::emit(f, bytes, flavour, fixed, translated).map(|(clone, _)| clone)
}

fn emitted(f: &Function, bytes: &[u8], flavour: u32) -> Vec<String> {
    text(&emit(f, bytes, flavour, false, false).unwrap().code)
}

/// mov rax,[rdi]; mov rcx,[rdi+8]; ret
const TWO_LOADS: &[u8] = &[0x48, 0x8b, 0x07, 0x48, 0x8b, 0x4f, 0x08, 0xc3];
/// mov rax,[rax+rcx*8+4]; ret
const OWN_BASE: &[u8] = &[0x48, 0x8b, 0x44, 0xc8, 0x04, 0xc3];

/// A region with these records.
fn region(records: Vec<RecordPlan>) -> RegionPlan {
    RegionPlan {
        records: records.into(),
        ..RegionPlan::default()
    }
}

#[test]
fn a_dead_register_holds_the_cursor() {
    let (mut f, bytes) = function(&[TWO_LOADS], set(&[8]));
    f.plan.regions = vec![region(vec![record(0, Payload::Reg(Gpr(7)))])];
    assert_eq!(
        emitted(&f, &bytes, FLAVOUR_SOFT),
        [
            "mov %gs:0,%r8d",
            "mov %rdi,(%r8)",
            "movl $0,0xC(%r8)",
            "lea 0x10(%r8),%r8d",
            "mov %r8d,%gs:0",
            "mov (%rdi),%rax",
            "mov 8(%rdi),%rcx",
            "ret"
        ]
    );
}

#[test]
fn the_destination_of_the_load_is_spared() {
    // rax is dead before the load, but a fault handler may read it.
    let (mut f, bytes) = function(&[TWO_LOADS], set(&[0]));
    f.plan.regions = vec![region(vec![record(0, Payload::Reg(Gpr(7)))])];
    let lines = emitted(&f, &bytes, FLAVOUR_SOFT);
    assert_eq!(lines[..2], ["mov %rax,%gs:8", "mov %gs:0,%eax"]);
    assert_eq!(
        lines[4..8],
        [
            "lea 0x10(%rax),%eax",
            "mov %eax,%gs:0",
            "mov %gs:8,%rax",
            "mov (%rdi),%rax"
        ]
    );
}

#[test]
fn records_of_a_region_share_cursor_and_commit() {
    let (mut f, bytes) = function(&[TWO_LOADS], set(&[2]));
    let records = vec![record(0, Payload::Reg(Gpr(7))), record(1, Payload::Address)];
    f.plan.regions = vec![region(records)];
    assert_eq!(
        emitted(&f, &bytes, FLAVOUR_SOFT),
        [
            "mov %gs:0,%edx",
            "mov %rdi,(%rdx)",
            "movl $0,0xC(%rdx)",
            "mov (%rdi),%rax",
            "mov %rax,%gs:0x10",
            "lea 8(%rdi),%rax",
            "mov %rax,0x10(%rdx)",
            "mov %gs:0x10,%rax",
            "movl $0,0x1C(%rdx)",
            "lea 0x20(%rdx),%edx",
            "mov %edx,%gs:0",
            "mov 8(%rdi),%rcx",
            "ret",
        ]
    );
}

#[test]
fn a_cursor_register_that_the_program_needs_in_between_is_given_up() {
    // mov rax,[rdi]; mov rdx,rax; mov rcx,[rdi+8]: rdx is dead until it is written.
    let code = [
        0x48, 0x8b, 0x07, 0x48, 0x89, 0xc2, 0x48, 0x8b, 0x4f, 0x08, 0xc3,
    ];
    let (mut f, bytes) = function(&[&code], set(&[2]));
    f.cfg.insns[2].dead = set(&[9]);
    f.plan.regions = vec![region(vec![
        record(0, Payload::Reg(Gpr(7))),
        record(2, Payload::Reg(Gpr(7))),
    ])];
    let lines = emitted(&f, &bytes, FLAVOUR_SOFT);
    assert_eq!(lines[0], "mov %gs:0,%edx");
    assert_eq!(
        lines[3..8],
        [
            "mov (%rdi),%rax",
            "mov %rax,%rdx",
            "mov %gs:0,%r9d",
            "mov %rdi,0x10(%r9)",
            "movl $0,0x1C(%r9)"
        ]
    );
}

#[test]
fn pt_records_need_no_borrowing() {
    let (mut f, bytes) = function(&[TWO_LOADS], RegSet::EMPTY);
    f.plan.regions = vec![region(vec![
        record(0, Payload::Reg(Gpr(7))),
        record(1, Payload::Address),
    ])];
    assert_eq!(
        emitted(&f, &bytes, FLAVOUR_PT),
        [
            "ptwrite %rdi",
            "mov (%rdi),%rax",
            "lea 8(%rdi),%rcx",
            "ptwrite %rcx",
            "mov 8(%rdi),%rcx",
            "ret"
        ]
    );
}

#[test]
fn a_load_over_its_own_base_reads_through_the_recorded_address() {
    let (mut f, bytes) = function(&[OWN_BASE], RegSet::EMPTY);
    f.plan.regions = vec![region(vec![record(0, Payload::Address)])];
    assert_eq!(
        emitted(&f, &bytes, FLAVOUR_PT),
        [
            "lea 4(%rax,%rcx,8),%rax",
            "ptwrite %rax",
            "mov (%rax),%rax",
            "ret"
        ]
    );
    for (code, expected) in [
        // movzx r13d, byte [r13+rcx]; movsxd rbp,[rbp+8]; mov r12,[r12+8]; imul eax,[rax+rcx],7;
        // rorx r9,[r9+8],3
        (
            &[0x45, 0x0f, 0xb6, 0x6c, 0x0d, 0x00, 0xc3][..],
            "movzbl (%r13),%r13d",
        ),
        (&[0x48, 0x63, 0x6d, 0x08, 0xc3], "movslq (%rbp),%rbp"),
        (&[0x4d, 0x8b, 0x64, 0x24, 0x08, 0xc3], "mov (%r12),%r12"),
        (&[0x6b, 0x04, 0x08, 0x07, 0xc3], "imul $7,(%rax),%eax"),
        (
            &[0xc4, 0x43, 0xfb, 0xf0, 0x49, 0x08, 0x03, 0xc3],
            "rorx $3,(%r9),%r9",
        ),
    ] {
        let (mut f, bytes) = function(&[code], RegSet::EMPTY);
        f.plan.regions = vec![region(vec![record(0, Payload::Address)])];
        assert_eq!(emitted(&f, &bytes, FLAVOUR_PT)[2], expected);
    }
}

#[test]
fn thread_local_addresses_get_the_segment_base() {
    // mov rax, fs:[rdx+rcx*4+8]; ret
    let code = [0x64, 0x48, 0x8b, 0x44, 0x8a, 0x08, 0xc3];
    let (mut f, bytes) = function(&[&code], set(&[8]));
    f.plan.regions = vec![region(vec![record(0, Payload::Address)])];
    assert_eq!(
        emitted(&f, &bytes, FLAVOUR_PT)[..4],
        [
            "mov %fs:0,%r8",
            "lea 8(%r8,%rdx),%r8",
            "lea (%r8,%rcx,4),%r8",
            "ptwrite %r8"
        ]
    );
}

#[test]
fn a_gather_leaves_base_index_and_mask() {
    // vpgatherdd ymm1,[rax+ymm2*4+16],ymm3; ret
    let code = [0xc4, 0xe2, 0x65, 0x90, 0x4c, 0x90, 0x10, 0xc3];
    let (mut f, bytes) = function(&[&code], set(&[1, 2]));
    let half = |vector, half| {
        record(
            0,
            Payload::Half(VectorHalf {
                vector,
                bytes: 32,
                half,
            }),
        )
    };
    let mut records = vec![record(0, Payload::Address)];
    records.extend((0..4).map(|n| half(2, n)));
    records.push(record(0, Payload::Mask(3)));
    f.plan.regions = vec![region(records)];
    assert_eq!(
        emitted(&f, &bytes, FLAVOUR_SOFT),
        [
            "mov %gs:0,%ecx",
            "lea 0x10(%rax),%rdx",
            "mov %rdx,(%rcx)",
            "movl $0,0xC(%rcx)",
            "vmovdqu %xmm2,0x10(%rcx)",
            "mov 0x18(%rcx),%rdx",
            "movl $0,0x1C(%rcx)",
            "mov %rdx,0x20(%rcx)",
            "movl $0,0x2C(%rcx)",
            "vextracti128 $1,%ymm2,0x30(%rcx)",
            "mov 0x38(%rcx),%rdx",
            "movl $0,0x3C(%rcx)",
            "mov %rdx,0x40(%rcx)",
            "movl $0,0x4C(%rcx)",
            "kmovw %k3,%edx",
            "mov %rdx,0x50(%rcx)",
            "movl $0,0x5C(%rcx)",
            "lea 0x60(%rcx),%ecx",
            "mov %ecx,%gs:0",
            "vpgatherdd %ymm3,0x10(%rax,%ymm2,4),%ymm1",
            "ret",
        ]
    );
}

/// The two records hold an index and an address after the load. Both are written at the place of
/// the first, under one id.
#[test]
fn two_records_share_a_slot() {
    // mov rax,[rdi+rsi*8]; mov rcx,[rdx+8]; ret
    let code = [0x48, 0x8b, 0x04, 0xf7, 0x48, 0x8b, 0x4a, 0x08, 0xc3];
    let (mut f, bytes) = function(&[&code], set(&[8]));
    let second = |r, of| RecordPlan {
        of: InsnId(of),
        second: true,
        ..record(0, Payload::Reg(Gpr(r)))
    };
    let records = vec![
        record(0, Payload::Reg(Gpr(7))),
        second(6, 0),
        record(0, Payload::Reg(Gpr(7))),
        second(2, 1),
    ];
    f.plan.regions = vec![region(records)];
    assert_eq!(
        emitted(&f, &bytes, FLAVOUR_SOFT),
        [
            "mov %gs:0,%r8d",
            "mov %rdi,(%r8)",
            "mov %rsi,6(%r8)",
            "movl $0x80000000,0xC(%r8)",
            "mov %rdi,0x10(%r8)",
            "mov %rdx,0x16(%r8)",
            "movl $0x80000000,0x1C(%r8)",
            "lea 0x20(%r8),%r8d",
            "mov %r8d,%gs:0",
            "mov (%rdi,%rsi,8),%rax",
            "mov 8(%rdx),%rcx",
            "ret",
        ]
    );
    let (e, rows) = crate::emit::emit(&f, &bytes, FLAVOUR_SOFT, false, false).unwrap();
    let at: Vec<u64> = rows.records.iter().map(|r| r.clone_ip).collect();
    assert!(at[0] == at[1] && at[1] < at[2] && at[2] == at[3], "{at:?}");
    let ids: Vec<_> = e
        .fixups
        .iter()
        .filter(|f| matches!(f.kind, FixupKind::RecordId(_)))
        .map(|f| f.kind)
        .collect();
    assert_eq!(ids, [FixupKind::RecordId(0), FixupKind::RecordId(2)]);
}

#[test]
fn the_count_after_a_repeated_string_instruction_is_recorded_behind_it() {
    // repne scasb; ret
    let (mut f, bytes) = function(&[&[0xf2, 0xae, 0xc3]], set(&[8]));
    let records = vec![
        record(0, Payload::Reg(Gpr(7))),
        RecordPlan {
            after: true,
            ..record(0, Payload::Reg(Gpr(1)))
        },
    ];
    f.plan.regions = vec![region(records)];
    let lines = emitted(&f, &bytes, FLAVOUR_SOFT);
    assert_eq!(
        lines[3..6],
        [
            "repne scas (%rdi),%al",
            "mov %rcx,0x10(%r8)",
            "movl $0,0x1C(%r8)"
        ]
    );
}

#[test]
fn code_addresses_that_are_fixed_save_a_byte() {
    let (mut f, bytes) = function(&[TWO_LOADS], set(&[8]));
    f.plan.regions = vec![region(vec![record(0, Payload::Reg(Gpr(7)))])];
    let (long, short) = (
        emit(&f, &bytes, FLAVOUR_SOFT, false, false).unwrap(),
        emit(&f, &bytes, FLAVOUR_SOFT, true, false).unwrap(),
    );
    assert_eq!(long.code.len() - short.code.len(), 2);
    let offsets: Vec<FixupKind> = short.fixups.iter().map(|f| f.kind).collect();
    assert_eq!(
        offsets,
        [
            FixupKind::Original(0),
            FixupKind::Original(0),
            FixupKind::RecordId(0)
        ]
    );
}

#[test]
fn branches_stay_inside_and_no_operations_go() {
    // 1000: test eax,eax; je 100c; 1004: nopl 0(rax,rax); nop; 100a: jmp 1000; 100c: ret
    let blocks: [&[u8]; 4] = [
        &[0x85, 0xc0, 0x74, 0x08],
        &[0x0f, 0x1f, 0x44, 0, 0, 0x90],
        &[0xeb, 0xf4],
        &[0xc3],
    ];
    let (f, bytes) = function(&blocks, RegSet::EMPTY);
    let e = emit(&f, &bytes, FLAVOUR_SOFT, false, false).unwrap();
    assert_eq!(text(&e.code), ["test %eax,%eax", "je 6", "jmp 0", "ret"]);
    assert_eq!(e.clone_of(0x100a), Some(4));
    assert_eq!(e.clone_from(0x1005), 4, "what has no clone goes on behind");
    assert_eq!(e.clone_of(0x1005), None);
}

#[test]
fn a_function_that_runs_out_of_its_range_goes_on_in_the_original() {
    let (f, bytes) = function(&[&[0x90, 0x31, 0xc0]], RegSet::EMPTY);
    let e = emit(&f, &bytes, FLAVOUR_SOFT, false, false).unwrap();
    assert_eq!(e.code, [0x31, 0xc0, 0xe9, 0, 0, 0, 0]);
    assert_eq!(
        e.fixups.iter().collect::<Vec<_>>(),
        [Fixup {
            at: 3,
            end: 7,
            kind: FixupKind::Code(0x1003)
        }]
    );
}

#[test]
fn a_table_load_is_redirected_whatever_its_displacement_was() {
    // movslq (rdx,rax,4),rcx / movslq 4(rdx,rax,4),rcx / jmp *0x2000(,rax,8)
    for (code, length, disp) in [
        (&[0x48, 0x63, 0x0c, 0x82, 0xc3][..], 8, 0),
        (&[0x48, 0x63, 0x4c, 0x82, 0x04, 0xc3], 8, 4),
        (&[0xff, 0x24, 0xc5, 0x00, 0x20, 0, 0], 7, 0x2000),
    ] {
        let (mut f, bytes) = function(&[code], RegSet::EMPTY);
        let form = TableForm::Relative { anchor: 0x2000 };
        f.tables = vec![JumpTable {
            load: InsnId(0),
            jump: InsnId(0),
            table: 0x2000,
            form,
            targets: vec![START],
        }];
        let e = emit(&f, &bytes, FLAVOUR_SOFT, false, false).unwrap();
        let first = e.fixups.iter().next().unwrap();
        assert_eq!(first.kind, FixupKind::Table { table: 0, disp });
        assert_eq!(first.end, length);
        assert_eq!(e.tables[0].targets, [START]);
    }
}

#[test]
fn entry_jumps_stand_where_no_branch_can_meet_them() {
    // endbr64; mov rax,[rdi]; mov rcx,[rdi+8]; ret
    let code = [&[0xf3, 0x0f, 0x1e, 0xfa][..], TWO_LOADS].concat();
    let (f, bytes) = function(&[&code], RegSet::EMPTY);
    assert_eq!(
        emit(&f, &bytes, FLAVOUR_SOFT, false, false)
            .unwrap()
            .patches,
        [(START + 4, 4)]
    );
    // The block ends after three bytes: no room.
    let (mut f, bytes) = function(&[&TWO_LOADS[..3], &TWO_LOADS[3..]], RegSet::EMPTY);
    f.cfg.blocks[1].external_entry = true;
    f.cfg.blocks[0].succs = vec![BlockId(1)].into();
    assert_eq!(
        emit(&f, &bytes, FLAVOUR_SOFT, false, false)
            .unwrap()
            .patches,
        [(START + 3, 3)]
    );
}

#[test]
fn the_map_has_a_state_for_every_boundary() {
    let (mut f, bytes) = function(&[TWO_LOADS], set(&[0]));
    f.plan.regions = vec![region(vec![record(0, Payload::Reg(Gpr(7)))])];
    let e = emit(&f, &bytes, FLAVOUR_SOFT, false, false).unwrap();
    let placed = crate::link::layout::Placed {
        clones: vec![0x9000],
        records: vec![0],
        record_count: 1,
        ..Default::default()
    };
    let map = crate::sidecar::address_map(&[Box::new(e.clone())], &placed).concat();
    let map = AddrMap::new(&map).unwrap();
    let states: Vec<(u64, u8, u8, u8, u8)> = map
        .walk(0)
        .unwrap()
        .map(|s| {
            let p = map.state(s.state).unwrap();
            (
                s.orig,
                p.slots_done,
                p.base_reg,
                p.base_ahead,
                p.saved[0][0],
            )
        })
        .collect();
    let none = 0xff;
    assert_eq!(
        states,
        [
            (0x1000, 0, none, 0, none),
            (0x1000, 0, none, 0, 0),
            (0x1000, 0, 0, 0, 0),
            (0x1000, 0, 0, 0, 0),
            (0x1000, 1, 0, 0, 0),
            (0x1000, 1, 0, 1, 0),
            (0x1000, 0, none, 0, 0),
            (0x1000, 0, none, 0, none),
            (0x1003, 0, none, 0, none),
            (0x1007, 0, none, 0, none),
        ]
    );
}

#[test]
fn a_loop_with_a_borrowed_cursor_is_left_by_every_branch() {
    use crate::plan::cursor::{Kept, PLACE_RESIDENCY, Residencies, Residency};
    // 0: mov rax,[rdi]; je 3 | 1: mov rcx,[rdi+8]; jne 0 | 2: ret | 3: ret
    let blocks: [&[u8]; 4] = [
        &[0x48, 0x8b, 0x07, 0x74, 0x07],
        &[0x48, 0x8b, 0x4f, 0x08, 0x75, 0xf5],
        &[0xc3],
        &[0xc3],
    ];
    let (mut f, bytes) = function(&blocks, RegSet::EMPTY);
    f.cfg.blocks[0].succs = vec![BlockId(1), BlockId(3)].into();
    f.cfg.blocks[1].succs = vec![BlockId(0), BlockId(2)].into();
    (f.cfg.blocks[0].preds, f.cfg.blocks[1].preds) =
        (vec![BlockId(1)].into(), vec![BlockId(0)].into());
    (f.cfg.blocks[2].preds, f.cfg.blocks[3].preds) =
        (vec![BlockId(1)].into(), vec![BlockId(0)].into());
    let region = |at| region(vec![record(at, Payload::Reg(Gpr(7)))]);
    f.plan.regions = vec![region(0), region(2)];
    let residency = Residency {
        cursor: Kept {
            reg: Gpr(2),
            spilled: true,
        },
        scratch: None,
        late: false,
    };
    // Here, block 3 has no code before its label, so the branch to it is inverted.
    f.residencies = Residencies::of_parts(
        vec![residency],
        vec![Some(0), Some(0), None, None],
        vec![Some(None), None, Some(Some(0)), None],
    );
    let lines = emitted(&f, &bytes, FLAVOUR_SOFT);
    let place = format!("%gs:{:#x}", 8 + 8 * PLACE_RESIDENCY);
    let (save, restore) = (format!("mov %rdx,{place}"), format!("mov {place},%rdx"));
    let expected: Vec<&str> = vec![
        &save,
        "mov %gs:0,%edx",
        "mov %rdi,(%rdx)",
        "movl $0,0xC(%rdx)",
        "lea 0x10(%rdx),%edx",
        "mov %edx,%gs:0",
        "mov (%rdi),%rax",
        "jne 0x3a",
        &restore,
        "jmp 0x68",
        "mov %rdi,(%rdx)",
        "movl $0,0xC(%rdx)",
        "lea 0x10(%rdx),%edx",
        "mov %edx,%gs:0",
        "mov 8(%rdi),%rcx",
        "jne 0x11",
        &restore,
        "ret",
        "ret",
    ];
    let plain = |lines: &[&str]| {
        lines
            .iter()
            .map(|l| {
                l.split(" 0x")
                    .next()
                    .filter(|_| l.starts_with('j'))
                    .unwrap_or(l)
                    .to_string()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        plain(&lines.iter().map(String::as_str).collect::<Vec<_>>()),
        plain(&expected)
    );
    // The map has the inverted branch as the original's, and the code before it runs first.
    let e = emit(&f, &bytes, FLAVOUR_SOFT, false, false).unwrap();
    assert_eq!(
        e.clone_of(START),
        Some(0),
        "callers get what loads the cursor"
    );
    assert_eq!(e.clone_from(START), 0);
}

/// Loads of the cursor.
fn cursor_loads(f: &Function, bytes: &[u8]) -> usize {
    emitted(f, bytes, FLAVOUR_SOFT)
        .iter()
        .filter(|l| l.starts_with("mov %gs:0,"))
        .count()
}

#[test]
fn the_cursor_stays_in_its_register_until_the_program_writes_it() {
    // 0: mov rax,[rdi]; jne 2 | 1: mov rcx,[rdi+8] | 2: mov rdx,[rdi+16]; ret
    let blocks: [&[u8]; 3] = [
        &[0x48, 0x8b, 0x07, 0x75, 0x04],
        &[0x48, 0x8b, 0x4f, 0x08],
        &[0x48, 0x8b, 0x57, 0x10, 0xc3],
    ];
    let (mut f, bytes) = function(&blocks, set(&[8]));
    let region = |i| region(vec![record(i, Payload::Reg(Gpr(7)))]);
    f.plan.regions = vec![region(0), region(2), region(3)];
    f.cfg.blocks[1].preds.push(BlockId(0));
    f.cfg.blocks[2].preds.extend([BlockId(0), BlockId(1)]);
    assert_eq!(cursor_loads(&f, &bytes), 1);
    // A handler that interrupts the code in between finds the cursor in the register.
    let e = emit(&f, &bytes, FLAVOUR_SOFT, false, false).unwrap();
    let placed = crate::link::layout::Placed {
        clones: vec![0x9000],
        records: vec![0],
        ..Default::default()
    };
    let bytes_of_map = crate::sidecar::address_map(&[Box::new(e.clone())], &placed).concat();
    let map = AddrMap::new(&bytes_of_map).unwrap();
    let jump = map
        .walk(0)
        .unwrap()
        .filter(|s| s.orig == START + 3)
        .last()
        .unwrap();
    assert_eq!(map.state(jump.state).unwrap().base_reg, 8);
    // Control from elsewhere does not bring the cursor.
    f.cfg.blocks[1].external_entry = true;
    assert_eq!(cursor_loads(&f, &bytes), 2);
    f.cfg.blocks[1].external_entry = false;
    // Another register takes the cursor over.
    f.cfg.insns[2].dead = set(&[9]);
    let lines = emitted(&f, &bytes, FLAVOUR_SOFT);
    assert!(lines.iter().any(|l| l == "mov %r8d,%r9d"), "{lines:?}");
    // Block 2 is reached with r8 or r9.
    assert_eq!(cursor_loads(&f, &bytes), 2);
    // The program writes the register.
    f.cfg.insns[2].dead = set(&[8]);
    f.uses[1].clobber = set(&[8]);
    assert_eq!(cursor_loads(&f, &bytes), 3);
}

#[test]
fn no_register_keeps_the_cursor_over_a_call() {
    // mov rax,[rdi]; call; mov rcx,[rdi+8]; ret
    let code = [
        0x48, 0x8b, 0x07, 0xe8, 0, 0x10, 0, 0, 0x48, 0x8b, 0x4f, 0x08, 0xc3,
    ];
    let (mut f, bytes) = function(&[&code], set(&[8]));
    let region = |i| region(vec![record(i, Payload::Reg(Gpr(7)))]);
    f.plan.regions = vec![region(0), region(2)];
    assert_eq!(cursor_loads(&f, &bytes), 2);
}

#[test]
fn a_function_may_end_with_a_jump_into_a_stay() {
    use crate::plan::cursor::{Kept, Residencies, Residency};
    // 0: jmp 3 | 1: mov rax,[rdi]; jne 1 | 2: ret | 3: jmp 1
    let blocks: [&[u8]; 4] = [
        &[0xeb, 0x06],
        &[0x48, 0x8b, 0x07, 0x75, 0xfb],
        &[0xc3],
        &[0xeb, 0xf8],
    ];
    let (mut f, bytes) = function(&blocks, RegSet::EMPTY);
    f.plan.regions = vec![region(vec![record(1, Payload::Reg(Gpr(7)))])];
    let residency = Residency {
        cursor: Kept {
            reg: Gpr(2),
            spilled: false,
        },
        scratch: None,
        late: false,
    };
    f.residencies = Residencies::of_parts(
        vec![residency],
        vec![None, Some(0), None, None],
        vec![None; 4],
    );
    let lines = emitted(&f, &bytes, FLAVOUR_SOFT);
    assert_eq!(
        lines[lines.len() - 2],
        "mov %gs:0,%edx",
        "the cursor is loaded before the jump: {lines:?}"
    );
}

/// Clone addresses, the original lengths they stand for, and true if a return address is pushed or
/// control returns there.
fn walk(e: &Emitted) -> Vec<(u64, u8, bool)> {
    let placed = crate::link::layout::Placed {
        clones: vec![0x9000],
        records: vec![0],
        ..Default::default()
    };
    let bytes = crate::sidecar::address_map(&[Box::new(e.clone())], &placed).concat();
    let map = AddrMap::new(&bytes).unwrap();
    map.walk(0)
        .unwrap()
        .map(|s| {
            (
                s.orig,
                map.state(s.state).unwrap().flags,
                map.state(s.state).unwrap().saved[0] == [0, 4],
            )
        })
        .collect()
}

/// je 1f; lock; 1: add dword [rdi], 0x11111111; ret
pub(crate) fn around_a_lock() -> (Function, Vec<u8>) {
    let bytes = vec![0x74, 0x01, 0xf0, 0x81, 0x07, 0x11, 0x11, 0x11, 0x11, 0xc3];
    let (mut f, _) = function(&[&bytes], RegSet::EMPTY);
    let body = crate::x86::decode::decode_function(&bytes, START, &[]).unwrap();
    f.uses = uses(&body.insns);
    let block = |i: u32, succs: &[u32]| Block {
        insns: i..i + 1,
        succs: succs.iter().copied().map(BlockId).collect(),
        preds: Default::default(),
        external_entry: false,
    };
    let blocks = vec![
        block(0, &[1, 2]),
        block(1, &[3]),
        block(2, &[3]),
        block(3, &[]),
    ];
    f.cfg = Cfg::of_parts(body.insns, blocks);
    (f, bytes)
}

#[test]
fn a_branch_behind_a_prefix_finds_the_instruction_without_it() {
    use mgz_abi::address_map::STATE_PASSED;
    let (mut f, bytes) = around_a_lock();
    f.plan.regions = vec![
        region(vec![record(1, Payload::Reg(Gpr(7)))]),
        region(vec![record(2, Payload::Reg(Gpr(7)))]),
    ];
    let e = emit(&f, &bytes, FLAVOUR_PT, false, false).unwrap();
    let lines = [
        "je 0x0000000000000010",
        "ptwrite %rdi",
        "lock addl $0x11111111,(%rdi)",
        "jmp 0x000000000000001B",
        "ptwrite %rdi",
        "addl $0x11111111,(%rdi)",
        "ret",
    ];
    assert_eq!(text(&e.code), lines);
    let (je, with, without, ret) = (START, START + 2, START + 3, START + 9);
    let states = [
        (je, 0),
        (with, 0),
        (with, 0),
        (without, STATE_PASSED),
        (without, 0),
        (without, 0),
        (ret, 0),
    ];
    assert_eq!(
        walk(&e).iter().map(|w| (w.0, w.1)).collect::<Vec<_>>(),
        states
    );
    assert_eq!(
        (0..10)
            .filter(|&m| e.marks.entry_at_original(m).is_some())
            .collect::<Vec<_>>(),
        [0, 2, 3, 9]
    );
}

/// mov rax, [rdi] 40 times, each with a record; a branch of this opcode back to the start, which is
/// in reach only in the original; ret
pub(crate) fn around_a_far_loop(opcode: u8) -> (Function, Vec<u8>) {
    let mut bytes = [0x48, 0x8b, 0x07].repeat(40);
    bytes.extend([opcode, 0x100u16.wrapping_sub(122) as u8, 0xc3]);
    let (mut f, _) = function(&[&bytes[..122], &bytes[122..]], RegSet::EMPTY);
    f.cfg.blocks[0].succs = [BlockId(0), BlockId(1)].into_iter().collect();
    f.plan.regions = (0..40)
        .map(|i| region(vec![record(i, Payload::Reg(Gpr(7)))]))
        .collect();
    (f, bytes)
}

#[test]
fn a_far_loop_has_counted_before_it_jumps() {
    use mgz_abi::address_map::STATE_COUNTED;
    let (at, ret) = (START + 120, START + 122);
    for (opcode, inside) in [(0xe0, STATE_COUNTED), (0xe2, STATE_COUNTED), (0xe3, 0)] {
        let (mut f, bytes) = around_a_far_loop(opcode);
        let e = emit(&f, &bytes, FLAVOUR_PT, false, false).unwrap();
        assert_eq!(
            walk(&e)[80..]
                .iter()
                .map(|w| (w.0, w.1))
                .collect::<Vec<_>>(),
            [(at, 0), (at, inside), (at, inside), (ret, 0)],
            "{opcode:x}"
        );
        // The loop is one instruction if its target is in reach.
        f.plan.regions.clear();
        let e = emit(&f, &bytes, FLAVOUR_PT, false, false).unwrap();
        assert_eq!(
            walk(&e)[40..]
                .iter()
                .map(|w| (w.0, w.1))
                .collect::<Vec<_>>(),
            [(at, 0), (ret, 0)],
            "{opcode:x}"
        );
    }
    // loop, out of the function; ret
    let (f, bytes) = function(&[&[0xe2, 0x70], &[0xc3]], RegSet::EMPTY);
    let e = emit(&f, &bytes, FLAVOUR_PT, false, false).unwrap();
    assert_eq!(
        walk(&e).iter().map(|w| (w.0, w.1)).collect::<Vec<_>>(),
        [
            (START, 0),
            (START, STATE_COUNTED),
            (START, STATE_COUNTED),
            (START + 2, 0)
        ]
    );
}

#[test]
fn no_entry_jump_is_put_behind_a_prefix() {
    let (mut f, bytes) = around_a_lock();
    f.cfg.blocks[2].external_entry = true;
    assert_eq!(
        emit(&f, &bytes, FLAVOUR_SOFT, false, false)
            .unwrap()
            .patches,
        [],
        "the instruction with the prefix would become another"
    );
    f.cfg.insns.remove(1);
    f.uses.remove(1);
    f.cfg.blocks.remove(1);
    f.cfg
        .blocks
        .iter_mut()
        .skip(1)
        .for_each(|b| b.insns = b.insns.start - 1..b.insns.end - 1);
    f.cfg = Cfg::of_parts(f.cfg.insns, f.cfg.blocks);
    assert_eq!(
        emit(&f, &bytes, FLAVOUR_SOFT, false, false)
            .unwrap()
            .patches
            .iter()
            .map(|p| p.0)
            .collect::<Vec<_>>(),
        [START + 3]
    );
}

#[test]
fn translated_calls_push_the_original_return_address() {
    use mgz_abi::address_map::{STATE_BACK, STATE_PUSHED};
    // call 2005; ret
    let (f, bytes) = function(&[&[0xe8, 0, 0x10, 0, 0, 0xc3]], RegSet::EMPTY);
    let e = emit(&f, &bytes, FLAVOUR_SOFT, false, true).unwrap();
    let expected = [
        "mov %rax,%gs:0x28",
        "lea 0x10,%rax",
        "push %rax",
        "mov %gs:0x28,%rax",
        "jmp 0x000000000000001F",
        "callq *%gs:0x60",
        "jmpq *%gs:0x48",
    ];
    assert_eq!(text(&e.code), expected);
    let kinds: Vec<FixupKind> = e.fixups.iter().map(|f| f.kind).collect();
    assert_eq!(
        kinds,
        [FixupKind::Original(0x1005), FixupKind::Call(0x2005)]
    );
    let (call, next) = (0x1000, 0x1005);
    let states = [
        (call, 0, false),
        (call, 0, true),
        (call, 0, true),
        (call, STATE_PUSHED, true),
        (call, STATE_PUSHED, false),
        (next, STATE_BACK, false),
        (next, 0, false),
    ];
    assert_eq!(walk(&e), states);
    // With fixed addresses, one instruction pushes the return address.
    let e = emit(&f, &bytes, FLAVOUR_SOFT, true, true).unwrap();
    let lines = text(&e.code);
    assert!(
        lines[0].starts_with("push")
            && lines[0].ends_with("$0x1005")
            && lines[1].starts_with("jmp 0x"),
        "{lines:?}"
    );
    assert_eq!(walk(&e)[1], (call, STATE_PUSHED, false));
}

#[test]
fn translated_calls_use_a_register_that_nobody_reads() {
    // call 2005; ret: r11 is free if a call goes through the linkage table.
    let (f, bytes) = function(&[&[0xe8, 0, 0x10, 0, 0, 0xc3]], RegSet(1 << 4 | 1 << 11));
    let e = emit(&f, &bytes, FLAVOUR_SOFT, false, true).unwrap();
    assert_eq!(
        text(&e.code),
        [
            "lea 7,%r11",
            "push %r11",
            "jmp 0x000000000000000E",
            "callq *%gs:0x60",
            "jmpq *%gs:0x48"
        ]
    );
    use mgz_abi::address_map::{STATE_BACK, STATE_PUSHED};
    assert_eq!(
        walk(&e),
        [
            (0x1000, 0, false),
            (0x1000, 0, false),
            (0x1000, STATE_PUSHED, false),
            (0x1005, STATE_BACK, false),
            (0x1005, 0, false)
        ]
    );
    // call *0x10(%rip)
    let (f, bytes) = function(&[&[0xff, 0x15, 0x10, 0, 0, 0]], RegSet(1 << 11));
    let e = emit(&f, &bytes, FLAVOUR_SOFT, false, true).unwrap();
    let lines = text(&e.code);
    assert!(
        lines[0].ends_with(",%r11")
            && lines[1] == "mov %r11,%gs:0x30"
            && lines[2].starts_with("lea ")
            && lines[3..6] == ["push %r11", "jmpq *%gs:0x50", "callq *%gs:0x60"],
        "{lines:?}"
    );
    assert_eq!(
        e.fixups.iter().next().unwrap(),
        Fixup {
            at: 3,
            end: 7,
            kind: FixupKind::Original(0x1016)
        }
    );
    // call *(%rax) with rbx free
    let (f, bytes) = function(&[&[0xff, 0x10]], RegSet(1 << 3));
    assert_eq!(
        text(&emit(&f, &bytes, FLAVOUR_SOFT, false, true).unwrap().code)[..2],
        ["mov (%rax),%rbx", "mov %rbx,%gs:0x30"]
    );
}

/// Unoptimized code has a no-operation after the last call of a function.
#[test]
fn calls_return_to_no_operations() {
    // call +0x100; nop; call *rax; nopw 0(%rax,%rax); nop; ret
    let (f, bytes) = function(
        &[&[
            0xe8, 0, 1, 0, 0, 0x90, 0xff, 0xd0, 0x66, 0x0f, 0x1f, 0x44, 0, 0, 0x90, 0xc3,
        ]],
        RegSet::EMPTY,
    );
    for translated in [false, true] {
        let emitted = emit(&f, &bytes, FLAVOUR_SOFT, false, translated).unwrap();
        let placed = crate::link::layout::Placed {
            clones: vec![0x9000],
            records: vec![0],
            ..Default::default()
        };
        let map = crate::sidecar::address_map(&[Box::new(emitted.clone())], &placed).concat();
        let map = AddrMap::new(&map).unwrap();
        for (at, there) in [
            (0, true),
            (5, translated),
            (6, true),
            (8, translated),
            (14, false),
            (15, true),
        ] {
            assert_eq!(
                map.at_original(START + at).is_some(),
                there,
                "+{at}, translated: {translated}"
            );
        }
    }
}

#[test]
fn translated_indirect_transfers_hand_their_target_over() {
    let cases: [(&[u8], &str, bool); 6] = [
        (&[0xff, 0xd0], "mov %rax,%rax", true),
        (&[0x41, 0xff, 0xd3], "mov %r11,%rax", true),
        (&[0xff, 0x54, 0x24, 0x08], "mov 8(%rsp),%rax", true),
        (
            &[0x64, 0xff, 0x14, 0x25, 0x10, 0, 0, 0],
            "mov %fs:0x10,%rax",
            true,
        ),
        (&[0x3e, 0xff, 0xe2], "mov %rdx,%rax", false),
        (
            &[0x43, 0xff, 0x64, 0xcf, 0x10],
            "mov 0x10(%r15,%r9,8),%rax",
            false,
        ),
    ];
    for (code, load, call) in cases {
        let (f, bytes) = function(&[code], RegSet::EMPTY);
        let lines = text(&emit(&f, &bytes, FLAVOUR_SOFT, false, true).unwrap().code);
        assert_eq!(
            lines[..3],
            ["mov %rax,%gs:0x28", load, "mov %rax,%gs:0x30"],
            "{code:02x?}"
        );
        if call {
            assert!(
                lines[3].starts_with("lea ")
                    && lines[4..8]
                        == [
                            "push %rax",
                            "mov %gs:0x28,%rax",
                            "jmpq *%gs:0x50",
                            "callq *%gs:0x60"
                        ],
                "{lines:?}"
            );
        } else {
            assert_eq!(lines[3..], ["mov %gs:0x28,%rax", "jmpq *%gs:0x58"]);
        }
    }
    // call *0x10(%rip)
    let (f, bytes) = function(&[&[0xff, 0x15, 0x10, 0, 0, 0]], RegSet::EMPTY);
    let e = emit(&f, &bytes, FLAVOUR_SOFT, false, true).unwrap();
    assert_eq!(
        e.fixups.iter().next().unwrap(),
        Fixup {
            at: 12,
            end: 16,
            kind: FixupKind::Original(0x1016)
        }
    );
    // Calls of the thread-local storage's resolver: data16 rex.W call *0x10(%rip). Without REX.W,
    // processors disagree on the meaning of 66.
    let (f, bytes) = function(&[&[0x66, 0x48, 0xff, 0x15, 0x10, 0, 0, 0]], RegSet::EMPTY);
    let e = emit(&f, &bytes, FLAVOUR_SOFT, false, true).unwrap();
    assert_eq!(
        e.fixups.iter().next().unwrap(),
        Fixup {
            at: 12,
            end: 16,
            kind: FixupKind::Original(0x1018)
        }
    );
    assert_eq!(e.code[9..12], [0x48, 0x8b, 0x05]);
    let (f, bytes) = function(&[&[0x66, 0xff, 0x15, 0x10, 0, 0, 0]], RegSet::EMPTY);
    assert_eq!(
        emit(&f, &bytes, FLAVOUR_SOFT, false, true).unwrap_err(),
        EmitError::Encoding
    );
    // ret 8 stays unchanged.
    let (f, bytes) = function(&[&[0xc2, 8, 0]], RegSet::EMPTY);
    assert_eq!(
        emit(&f, &bytes, FLAVOUR_SOFT, false, true).unwrap_err(),
        EmitError::Encoding
    );
}

/// Direct clones push their own return addresses, and continue in clones at the targets of
/// pointers.
#[test]
fn direct_clones_hand_targets_of_pointers_over() {
    let text_of = |code: &[u8], flavour, change: fn(&mut Function)| {
        let (mut f, bytes) = function(&[code], RegSet::EMPTY);
        change(&mut f);
        text(&emit(&f, &bytes, flavour, false, false).unwrap().code)
    };
    let expected = |load, hook| {
        [
            "mov %rax,%gs:0x28",
            load,
            "mov %rax,%gs:0x30",
            "mov %gs:0x28,%rax",
            hook,
        ]
    };
    let call = text_of(&[0xff, 0x54, 0x24, 0x08], FLAVOUR_SOFT, |_| ());
    assert_eq!(call[..5], expected("mov 8(%rsp),%rax", "callq *%gs:0x50"));
    let jump = text_of(&[0x3e, 0xff, 0xe2], FLAVOUR_SOFT, |_| ());
    assert_eq!(jump[..5], expected("mov %rdx,%rax", "jmpq *%gs:0x58"));
    // No hook is used in a flavour without translation, for an instruction with a disputed meaning,
    // or for a word that the loader fills in.
    let pt = text_of(&[0xff, 0xe2], FLAVOUR_PT, |_| ());
    assert!(!pt.concat().contains("%gs"), "{pt:?}");
    let disputed = text_of(&[0x66, 0xff, 0xd0], FLAVOUR_SOFT, |_| ());
    assert!(!disputed.concat().contains("%gs"), "{disputed:?}");
    let import = text_of(&[0xff, 0x15, 0x10, 0, 0, 0], FLAVOUR_SOFT, |f| {
        f.calls.by_linkage = vec![InsnId(0)];
    });
    assert!(!import.concat().contains("%gs"), "{import:?}");
}

#[test]
fn the_way_out_has_the_layout_that_the_runtime_reads() {
    let code = thunk(0x40_0000, 0x40_1234, true).unwrap();
    assert_eq!(code.len(), THUNK_BYTES);
    let lines = text(&code);
    assert_eq!(
        lines[..5],
        [
            "mov %rax,%gs:0x28",
            "lea 0x1234,%rax",
            "mov %rax,%gs:0x30",
            "mov %gs:0x28,%rax",
            "jmpq *%gs:0x50"
        ]
    );
    assert_eq!(
        i32::from_le_bytes(code[12..16].try_into().unwrap()),
        0x1234 - 16
    );
    assert_eq!(code[38..42], [0x50, 0, 0, 0]);
    assert!(thunk(0x40_0000, 1 << 40, false).is_none());
}
