//! Jump tables and recording plans in small programs, made by the system's compilers and assembler.

use iced_x86::FlowControl;
use mgz_abi::module_note::{FLAVOUR_PT, FLAVOUR_SOFT};
use mgz_annotations_schema::sidecar::{NO_RECORD, SiteFlags, SiteKind, reason};
use mgz_elf::Elf;
use mgz_instrument::discover::scan::discover;
use mgz_instrument::ir::FunctionId;
use mgz_instrument::pipeline::analysis_input::analysis_input;
use mgz_instrument::pipeline::function_pass::analyze;
use mgz_instrument::plan::planned_function::Function;
use mgz_instrument::plan::types::{Payload, RegionPlan, slots};
use mgz_instrument::program::InstrumentOptions;
use mgz_instrument::program::fixed_memory::FaultPolicy;
use mgz_instrument::unwind::Tables;
use mgz_instrument::x86::insn::InsnId;
use mgz_instrument::x86::regs::Gpr;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn build(compiler: &str, flags: &[&str], source: &str) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/analysis")
        .join(source);
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("t");
    let status = Command::new(compiler)
        .arg("-w")
        .args(flags)
        .arg("-o")
        .arg(&binary)
        .arg(source)
        .status();
    assert!(
        status.expect("a C compiler").success(),
        "{compiler} {flags:?}"
    );
    std::fs::read(binary).unwrap()
}

fn functions(data: &[u8], flavour: u32) -> BTreeMap<String, Function> {
    let elf = Elf::parse(data).unwrap();
    let tables = Tables::read(&elf).unwrap();
    let input = analysis_input(&elf, &tables);
    let options = InstrumentOptions::new(flavour);
    let program = discover(&input, &options);
    let named = program.functions.iter().filter(|f| !f.name.is_empty());
    named
        .filter_map(|f| {
            Some((
                f.name.clone(),
                analyze(
                    &input,
                    &program,
                    FunctionId(f.id.0),
                    &options,
                    &FaultPolicy::default(),
                )
                .ok()?,
            ))
        })
        .collect()
}

#[test]
fn switches_become_tables_and_computed_gotos_do_not() {
    let mut jumps_seen = 0;
    for compiler in ["gcc", "clang"] {
        for optimise in ["-O0", "-O1", "-O2", "-O3"] {
            for kind in [&["-fPIE", "-pie"][..], &["-fno-pie", "-no-pie"]] {
                let flags: Vec<&str> = [&[optimise, "-fcf-protection=none"][..], kind].concat();
                let all = functions(&build(compiler, &flags, "switches.c"), FLAVOUR_SOFT);
                for (name, f) in all
                    .iter()
                    .filter(|(n, _)| n.starts_with("table_") && !n.contains('.'))
                {
                    let jumps = f
                        .cfg
                        .insns
                        .iter()
                        .filter(|i| i.inst.flow_control() == FlowControl::IndirectBranch)
                        .count();
                    jumps_seen += jumps;
                    // Absolute tables of position-independent code are relocated: they are
                    // resolved, but not copied.
                    assert_eq!(f.tables.len(), jumps, "{compiler} {flags:?} {name}");
                    let entries = f.tables.iter().map(|t| t.targets.len());
                    assert!(
                        entries.clone().all(|n| (4..=256).contains(&n)),
                        "{compiler} {flags:?} {name}: {:?}",
                        entries.collect::<Vec<_>>()
                    );
                }
                let open = &all["open_goto"];
                assert!(open.tables.is_empty(), "{compiler} {flags:?}");
                let labels = if optimise == "-O0" { 4 } else { 3 };
                assert!(
                    open.patching.landings.len() >= labels,
                    "{compiler} {flags:?}: {:x?}",
                    open.patching.landings
                );
            }
        }
    }
    assert!(jumps_seen > 100, "the compilers made {jumps_seen} tables");
}

#[test]
fn a_table_without_a_bound_gives_its_own_targets_and_nobody_elses() {
    let all = functions(&build("gcc", &[], "unbounded.s"), FLAVOUR_SOFT);
    let landing = |f: &Function| -> Vec<String> {
        f.patching
            .landings
            .iter()
            .map(|&at| format!("{}", f.insn(f.insn_at(at).unwrap()).inst))
            .collect()
    };
    assert_eq!(
        landing(&all["first"]),
        ["add $2,%rdi", "add $4,%rdi", "mov %ecx,%eax"]
    );
    assert_eq!(
        landing(&all["second"]),
        ["test %eax,%eax", "subl $3,8(%rdi)", "add $6,%rdi"]
    );
    for f in [&all["first"], &all["second"]] {
        assert!(f.tables.is_empty() && !f.patching.blind, "{:x?}", f.range);
    }
    // A branch would reach into a patch over the instruction before a target.
    let second = &all["second"];
    let target = second.patching.landings[0];
    let before = second
        .cfg
        .insns
        .iter()
        .position(|i| i.ip == target)
        .unwrap()
        - 1;
    assert!(!second.may_patch(InsnId(before as u32)));
}

#[test]
fn what_symbols_and_relocations_name_gets_no_jump() {
    let data = build("gcc", &["-shared", "-nostdlib"], "named.s");
    let all = functions(&data, FLAVOUR_SOFT);
    assert!(all["nobody"].may_patch(InsnId(0)), "nothing but filler");
    for name in ["labelled", "summed", "data"] {
        assert!(!all[name].may_patch(InsnId(0)), "{name}");
    }
    // Labelled bytes may be code or data. (Control does not enter bytes that are certain to be
    // data.)
    let inside = &all["inside"];
    let entered: Vec<u64> = inside
        .cfg
        .blocks
        .iter()
        .filter(|b| b.external_entry)
        .map(|b| inside.insn(InsnId(b.insns.start)).ip - inside.range.start)
        .collect();
    assert_eq!(entered, [0, 4]);
    assert!(inside.is_data(inside.range.start + 4) && !inside.is_data(inside.range.start + 3));
    assert!(inside.patching.landings.is_empty());
}

#[test]
fn a_loop_around_a_switch_is_closed_by_the_switch_itself() {
    let all = functions(&build("gcc", &[], "again.s"), FLAVOUR_SOFT);
    let options = &all["options"];
    let table = options.tables.first().expect("a copied table");
    assert_eq!(
        (table.targets.len(), options.patching.landings.len()),
        (4, 0),
        "{:x?}",
        options.patching.landings
    );
    // Unless it is known that `exit` does not return, the table's register is lost on that path.
    let data = build("gcc", &[], "again.s");
    let elf = Elf::parse(&data).unwrap();
    let tables = Tables::read(&elf).unwrap();
    let mut input = analysis_input(&elf, &tables);
    assert!(!input.no_return.is_empty());
    input.no_return.clear();
    let program = discover(&input, &InstrumentOptions::new(FLAVOUR_SOFT));
    let function = program
        .functions
        .iter()
        .find(|f| f.name == "options")
        .unwrap();
    let blindly = analyze(
        &input,
        &program,
        FunctionId(function.id.0),
        &InstrumentOptions::new(FLAVOUR_SOFT),
        &FaultPolicy::default(),
    )
    .unwrap();
    assert!(blindly.tables.is_empty() && blindly.patching.blind);
}

#[test]
fn where_any_instruction_may_be_a_target_a_patch_replaces_one_instruction() {
    let all = functions(&build("gcc", &[], "unbounded.s"), FLAVOUR_SOFT);
    let unseen = &all["unseen"];
    assert!(unseen.patching.blind && !all["into_unseen"].patching.blind);
    let entered: Vec<InsnId> = unseen
        .cfg
        .blocks
        .iter()
        .filter(|b| b.external_entry)
        .map(|b| InsnId(b.insns.start))
        .collect();
    let may: Vec<bool> = entered.iter().map(|&i| unseen.may_patch(i)).collect();
    assert_eq!(
        may,
        [true, false, true],
        "the start, three short instructions, one of five bytes"
    );
}

fn plans(flavour: u32) -> BTreeMap<String, Vec<RegionPlan>> {
    let all = functions(&build("gcc", &["-shared", "-nostdlib"], "plans.s"), flavour);
    all.into_iter()
        .map(|(name, f)| (name, f.plan.regions))
        .collect()
}

/// Displacements of the sites of the only region, which has this many records.
fn displacements(regions: &[RegionPlan], records: usize) -> Vec<i64> {
    assert_eq!(regions.len(), 1, "{regions:?}");
    assert_eq!(regions[0].records.len(), records, "{regions:?}");
    regions[0].sites.iter().map(|s| s.disp).collect()
}

#[test]
fn loads_off_one_base_share_a_record_as_long_as_its_value_is_known() {
    let p = plans(FLAVOUR_SOFT);
    assert_eq!(displacements(&p["shared_base"], 1), [0, 8, 16, 12]);
    assert_eq!(displacements(&p["changed_base"], 2), [0, 0]);
    assert_eq!(displacements(&p["partly_changed_base"], 2), [0, 0]);
    assert_eq!(displacements(&p["shared_index"], 1), [0, 4, 4]);
    assert_eq!(displacements(&p["known_parts"], 2), [0, 0, 0]);
    let parts = &p["known_parts"][0].sites;
    assert_eq!(
        (parts[1].a, parts[1].b, parts[1].scale, parts[2].a),
        (0, 1, 8, 1)
    );
    assert_eq!(p["across_a_call"].len(), 2, "a call ends the region");
    assert_eq!(displacements(&p["stack_push"], 1), [0, 8]);
}

#[test]
fn registers_that_differ_by_a_constant_share_a_record() {
    for flavour in [FLAVOUR_SOFT, FLAVOUR_PT] {
        let p = plans(flavour);
        assert_eq!(
            displacements(&p["over_blocks"], 1),
            [0, 8, -64],
            "computed before the loop"
        );
        assert_eq!(
            displacements(&p["in_step"], 1),
            [0, -8],
            "the loop moves both"
        );
        assert_eq!(
            displacements(&p["out_of_step"], 2),
            [0, -24],
            "it moves one"
        );
    }
}

#[test]
fn constant_loads_are_implied_or_have_a_proxy() {
    let p = plans(FLAVOUR_SOFT);
    let implied = &p["implied"][0];
    assert_eq!((implied.records.len(), implied.implied_const), (1, 2));
    assert_eq!(implied.records[0].payload, Payload::Reg(Gpr(7)));
    let proxy = &p["proxy"][0];
    assert_eq!((proxy.records.len(), proxy.implied_const), (1, 1));
    assert_eq!(
        (proxy.records[0].payload, proxy.sites[0].disp),
        (Payload::Reg(Gpr(4)), 24)
    );
    assert_eq!(proxy.sites[0].flags & SiteFlags::IMPLIED, 0);
    assert_eq!(
        proxy.sites[1].flags & SiteFlags::IMPLIED,
        SiteFlags::IMPLIED
    );
    let fixed = &p["static_proxy"][0];
    assert_eq!(
        (fixed.records[0].payload, fixed.sites[0].a),
        (Payload::Nothing, NO_RECORD)
    );
    assert_eq!(fixed.sites[0].flags & SiteFlags::STATIC, SiteFlags::STATIC);
}

#[test]
fn string_instructions() {
    let p = plans(FLAVOUR_SOFT);
    assert_eq!(
        p["copies"].len(),
        2,
        "a repeated instruction ends its region"
    );
    let copy = &p["copies"][0];
    assert_eq!(
        (copy.sites.len(), copy.sites[0].kind, copy.sites[0].size),
        (1, SiteKind::String, 1)
    );
    let payloads: Vec<Payload> = copy.records.iter().map(|r| r.payload).collect();
    assert_eq!(payloads, [Payload::Reg(Gpr(6)), Payload::Reg(Gpr(1))]);
    let compare = &p["compares"][0];
    assert_eq!(
        compare
            .sites
            .iter()
            .map(|s| (s.kind, s.a, s.b))
            .collect::<Vec<_>>(),
        [(SiteKind::StringUntil, 0, 2), (SiteKind::StringUntil, 1, 2)]
    );
    assert_eq!(
        compare.records.iter().map(|r| r.after).collect::<Vec<_>>(),
        [false, false, false, true]
    );
    let backward = &p["backwards"][0].sites[0];
    assert_eq!(
        (backward.flags & SiteFlags::UNRECORDED, backward.reason),
        (SiteFlags::UNRECORDED, reason::DIRECTION)
    );
    assert_eq!(displacements(&p["steps"], 1), [0, 8]);
}

#[test]
fn addresses_that_need_a_register() {
    let soft = plans(FLAVOUR_SOFT);
    let pt = plans(FLAVOUR_PT);
    for two in [&soft["no_register"][0], &pt["no_register"][0]] {
        assert_eq!(
            two.records.iter().map(|r| r.payload).collect::<Vec<_>>(),
            [Payload::Reg(Gpr(7)), Payload::Reg(Gpr(6))]
        );
        assert_eq!(
            (two.sites[0].a, two.sites[0].b, two.sites[0].scale),
            (0, 1, 8)
        );
    }
    assert_eq!(pt["own_register"][0].records[0].payload, Payload::Address);
    assert_eq!(soft["thread_local"][0].records[0].payload, Payload::Address);
    let short = &soft["short_address"][0];
    assert_eq!(
        (
            short.records[0].payload,
            short.sites[0].flags & SiteFlags::ADDR32
        ),
        (Payload::Address, SiteFlags::ADDR32)
    );
}

#[test]
fn without_sharing_each_load_has_its_own_records() {
    let data = build("gcc", &["-shared", "-nostdlib"], "plans.s");
    let elf = Elf::parse(&data).unwrap();
    let tables = Tables::read(&elf).unwrap();
    let input = analysis_input(&elf, &tables);
    let options = InstrumentOptions {
        naive: true,
        ..InstrumentOptions::new(FLAVOUR_SOFT)
    };
    let program = discover(&input, &options);
    let f = program
        .functions
        .iter()
        .find(|f| f.name == "shared_base")
        .unwrap();
    let f = analyze(&input, &program, f.id, &options, &FaultPolicy::default()).unwrap();
    assert_eq!(displacements(&f.plan.regions, 4), [0, 8, 0, 0]);
}

#[test]
fn two_addresses_share_a_slot() {
    let p = plans(FLAVOUR_SOFT);
    // Record, place, and true if it is the second in its slot.
    let records = |name: &str| {
        p[name][0]
            .records
            .iter()
            .map(|r| (r.payload, r.at.0, r.second))
            .collect::<Vec<_>>()
    };
    let reg = |n| Payload::Reg(Gpr(n));
    assert_eq!(
        records("slot_of_two"),
        [
            (reg(7), 0, false),
            (reg(6), 0, true),
            (reg(0), 2, false),
            (reg(1), 2, true)
        ]
    );
    assert_eq!(
        records("slot_of_two_moved"),
        [(reg(7), 0, false), (reg(6), 0, true)]
    );
    assert_eq!(p["slot_of_two_moved"][0].sites[1].disp, 24);
    assert_eq!(slots(&p["slot_of_two"][0].records), 2);
    let one = records("slot_of_one");
    assert_eq!(
        one,
        [(reg(2), 0, false), (reg(6), 0, true), (reg(1), 1, false)]
    );
    let pt = plans(FLAVOUR_PT);
    assert!(
        pt.values()
            .flatten()
            .flat_map(|r| &r.records)
            .all(|r| !r.second && r.at == r.of)
    );
}

#[test]
fn constant_loads_are_counted_with_what_shows_that_they_ran() {
    for flavour in [FLAVOUR_SOFT, FLAVOUR_PT] {
        let p = plans(flavour);
        let counts = |name: &str| {
            p[name]
                .iter()
                .map(|r| (r.records.len(), r.implied_const))
                .collect::<Vec<_>>()
        };
        assert_eq!(counts("folded"), [(0, 0), (1, 2), (1, 2)]);
        assert!(
            p["folded"][0]
                .sites
                .iter()
                .all(|s| s.flags & SiteFlags::IMPLIED != 0 && s.a == NO_RECORD)
        );
        assert_eq!(counts("not_folded"), [(1, 0), (1, 0), (1, 0)]);
        assert_eq!(counts("not_folded_either"), [(1, 0), (1, 0), (1, 0)]);
    }
}
