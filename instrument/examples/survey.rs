//! Prints the results of analysis for ELF files: functions, tables, loads by class, records.
//!
//! `cargo run --release -p mgz-instrument --example survey -- [--pt] [--dump NAME] FILE…`

use mgz_annotations_schema::sidecar::SiteFlags;
use mgz_elf::Elf;
use mgz_instrument::common::skip_reason::LeftReason;
use mgz_instrument::discover::scan::discover;
use mgz_instrument::ir::FunctionId;
use mgz_instrument::pipeline::analysis_input::analysis_input;
use mgz_instrument::pipeline::function_pass::analyze;
use mgz_instrument::plan::planned_function::Function;
use mgz_instrument::program::InstrumentOptions;
use mgz_instrument::program::fixed_memory::FaultPolicy;
use mgz_instrument::unwind::Tables;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::time::Instant;

fn main() {
    let mut args = std::env::args().skip(1).peekable();
    let mut flavour = mgz_abi::module_note::FLAVOUR_SOFT;
    let mut dump = None;
    let mut files = Vec::new();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--pt" => flavour = mgz_abi::module_note::FLAVOUR_PT,
            "--dump" => dump = args.next(),
            _ => files.push(arg),
        }
    }
    for file in files {
        let data = match std::fs::read(&file) {
            Ok(data) => data,
            Err(e) => {
                eprintln!("{file}: {e}");
                continue;
            }
        };
        survey(&file, &data, flavour, dump.as_deref());
    }
}

fn survey(file: &str, data: &[u8], flavour: u32, dump: Option<&str>) {
    let options = InstrumentOptions::new(flavour);
    let elf = match Elf::parse(data) {
        Ok(elf) => elf,
        Err(e) => return eprintln!("{file}: {e}"),
    };
    let tables = match Tables::read(&elf) {
        Ok(tables) => tables,
        Err(e) => return eprintln!("{file}: {e}"),
    };
    let input = analysis_input(&elf, &tables);
    let start = Instant::now();
    let program = discover(&input, &options);
    let first = start.elapsed();
    let functions: Vec<Result<Function, LeftReason>> = (0..program.functions.len())
        .into_par_iter()
        .map(|i| {
            analyze(
                &input,
                &program,
                FunctionId(i as u32),
                &options,
                &FaultPolicy::default(),
            )
        })
        .collect();
    let both = start.elapsed();
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    let mut count = Count::default();
    for (f, info) in functions.iter().zip(&program.functions) {
        match f {
            Ok(f) => {
                count.add(f);
                if std::env::var_os("SHOW_JUMPS").is_some() {
                    print_jumps(f);
                }
                if dump.is_some_and(|d| d == info.name || d == format!("{:x}", info.range.start)) {
                    let mut text = String::new();
                    mgz_instrument::dump::dump_function(&mut text, f);
                    print!("{text}");
                }
            }
            Err(e) => {
                *left.entry(e.to_string()).or_default() += 1;
                if std::env::var_os("SHOW_LEFT").is_some() {
                    println!(
                        "left {:#x}-{:#x} {}: {e}",
                        info.range.start, info.range.end, info.name
                    );
                }
            }
        }
    }
    println!(
        "{file}: pass 1 {:.2} s, both {:.2} s, gs {:?}",
        first.as_secs_f64(),
        both.as_secs_f64(),
        program.uses_gs
    );
    println!("  functions {} left {left:?}", program.functions.len());
    count.print();
}

#[derive(Default)]
struct Count {
    insns: usize,
    blocks: usize,
    jumps: usize,
    tables: usize,
    landings: usize,
    loads: [usize; 3],
    known_stride: usize,
    implied: usize,
    unrecorded: [usize; 5],
    records: usize,
    regions: usize,
    free: usize,
}

impl Count {
    fn add(&mut self, f: &Function) {
        self.insns += f.cfg.insns.len();
        self.blocks += f.cfg.blocks.len();
        self.jumps += f
            .cfg
            .insns
            .iter()
            .filter(|i| i.inst.flow_control() == iced_x86::FlowControl::IndirectBranch)
            .count();
        self.tables += f.tables.len();
        self.landings += f.patching.landings.len();
        for r in &f.plan.regions {
            self.regions += 1;
            self.records += r.records.len();
            self.free += r
                .records
                .iter()
                .filter(|r| f.insn(r.at).dead.0 != 0)
                .count();
            for s in &r.sites {
                self.loads[usize::from(s.class)] += 1;
                self.known_stride += usize::from(s.flags & SiteFlags::STRIDE_KNOWN != 0);
                self.implied += usize::from(s.flags & SiteFlags::IMPLIED != 0);
                if s.flags & SiteFlags::UNRECORDED != 0 {
                    self.unrecorded[usize::from(s.reason)] += 1;
                }
            }
        }
    }

    fn print(&self) {
        let total: usize = self.loads.iter().sum();
        println!(
            "  instructions {} blocks {} landings {}",
            self.insns, self.blocks, self.landings
        );
        println!(
            "  indirect jumps {} tables copied {}",
            self.jumps, self.tables
        );
        println!(
            "  loads {total}: constant {} ({} implied) strided {} ({} known) irregular {}; unrecorded {:?}",
            self.loads[0],
            self.implied,
            self.loads[1],
            self.known_stride,
            self.loads[2],
            self.unrecorded
        );
        println!(
            "  regions {} records {} ({:.2} per non-constant load), at a free register {:.0}%",
            self.regions,
            self.records,
            self.records as f64 / (self.loads[1] + self.loads[2]).max(1) as f64,
            100.0 * self.free as f64 / self.records.max(1) as f64
        );
    }
}

/// Unresolved indirect jumps with the instructions before them.
fn print_jumps(f: &Function) {
    use iced_x86::{FlowControl, Formatter, GasFormatter};
    let mut formatter = GasFormatter::new();
    for (i, insn) in f.cfg.insns.iter().enumerate() {
        if insn.inst.flow_control() != FlowControl::IndirectBranch
            || f.tables.iter().any(|t| t.jump.0 as usize == i)
        {
            continue;
        }
        println!(
            "jump {:#x} in {:#x}, landings {}",
            insn.ip,
            f.range.start,
            f.patching.landings.len()
        );
        for before in &f.cfg.insns[i.saturating_sub(7)..=i] {
            let mut text = String::new();
            formatter.format(&before.inst, &mut text);
            println!("    {:x}  {text}", before.ip);
        }
    }
}
