//! `--prefetch`: prefetches in a file of their own, without records, runtime or sidecar.

use super::{Args, ReportFormat, Stop, Target, USAGE, appended, check_replaced, read, refused};
use crate::common::io;
use crate::common::prefetch::{Kind, Request, Wanted};
use crate::link::runpath::SearchPath;
use crate::pipeline::prefetched::Prefetch;
use crate::pipeline::rewrite::rewrite;
use crate::pipeline::settings::Settings;
use crate::program::InstrumentOptions;
use mgz_abi::address_map::AddrMap;
use mgz_abi::module_note::FLAVOUR_PT;
use mgz_elf::{Elf, demangle};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The argument that selects all loads.
const ALL: &str = "all";
/// Default distance in iterations.
const DISTANCE: u32 = 16;
/// Version of plans.
const VERSION: u32 = 1;

/// The file with the loads.
#[derive(Deserialize)]
struct Plan {
    version: u32,
    build_id: Option<String>,
    loads: Vec<PlannedLoad>,
    /// Return addresses to be translated to the new file, hex.
    #[serde(default)]
    returns: Vec<String>,
}

#[derive(Deserialize)]
struct PlannedLoad {
    address: String,
    #[serde(default)]
    kind: Kind,
    #[serde(default = "default_distance")]
    distance: u32,
}

fn default_distance() -> u32 {
    DISTANCE
}

/// The result in JSON.
#[derive(Serialize)]
struct Outcomes {
    placed: Vec<PlacedRow>,
    refused: Vec<RefusedRow>,
    moved: Vec<MovedRow>,
}

/// A return address of the plan that is at another address in the new file.
#[derive(Serialize)]
struct MovedRow {
    address: String,
    clone: String,
}

#[derive(Serialize)]
struct PlacedRow {
    address: String,
    kind: Kind,
    distance: u32,
    function: String,
}

#[derive(Serialize)]
struct RefusedRow {
    address: String,
    function: String,
    reason: String,
}

/// Writes the file, and returns the text to be printed.
pub(super) fn run_prefetch(args: &Args, input: &Path, plan: &Path) -> Result<String, Stop> {
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| appended(input, ".fixed"));
    let data = read(input)?;
    io::check_output_path(input, &output, "-o OUT")?;
    let elf = Elf::parse(data.bytes()).map_err(|e| refused(input, &e))?;
    if !args.force {
        check_replaced(input, &elf, &output)?;
    }
    let (request, returns) = match plan.as_os_str() == ALL {
        true => (Request::All { distance: DISTANCE }, Vec::new()),
        false => read_plan(plan, input, &elf)?,
    };
    let options = InstrumentOptions {
        prefetch: Some(request),
        ..InstrumentOptions::new(FLAVOUR_PT)
    };
    let settings = Settings {
        input: input.display().to_string(),
        output: output.display().to_string(),
        search_path: args
            .keep_origin
            .then(|| SearchPath::kept(&elf, input))
            .flatten(),
        options_text: format!("{:?}", options.prefetch),
        ..Settings::default()
    };
    let target = Target {
        input: input.to_owned(),
        annotations: appended(&output, ".mgza"),
        output,
        note_path: None,
        search_path: None,
        id_first: None,
        is_last: true,
    };
    let rewritten = rewrite(data.bytes(), &options, &settings, |image| {
        target.begin(image)
    });
    let rewritten = rewritten.map_err(|e| refused(input, &e))?;
    let mut outcomes = Outcomes::of(&rewritten.prefetches);
    outcomes.moved = moved(&rewritten.annotations.map.concat(), &returns);
    target.finish_alone(rewritten.begun?, &data)?;
    Ok(match args.format {
        _ if args.quiet => String::new(),
        ReportFormat::Text => outcomes.text(&target.input, &target.output),
        ReportFormat::Json => {
            serde_json::to_string_pretty(&outcomes).map_err(|e| Stop::error(e.to_string()))? + "\n"
        }
    })
}

fn usage(message: String) -> Stop {
    Stop {
        status: USAGE,
        message,
    }
}

/// The addresses in clones of return addresses.
fn moved(map: &[u8], returns: &[u64]) -> Vec<MovedRow> {
    let map = AddrMap::new(map);
    let place = |&address: &u64| {
        let (step, _) = map.as_ref()?.at_original(address)?;
        (step.orig == address).then(|| MovedRow {
            address: format!("{address:#x}"),
            clone: format!("{:#x}", step.clone),
        })
    };
    returns.iter().filter_map(place).collect()
}

/// An address of a plan.
fn parsed(shown: &impl std::fmt::Display, text: &str) -> Result<u64, Stop> {
    let digits = text.strip_prefix("0x");
    let address = digits.and_then(|d| u64::from_str_radix(d, 16).ok());
    address.ok_or_else(|| {
        usage(format!(
            "{shown}: {text} is no address; write it in hex, such as 0x401234"
        ))
    })
}

/// Reads a plan, which must be for this file: the loads, and the return addresses.
fn read_plan(path: &Path, input: &Path, elf: &Elf) -> Result<(Request, Vec<u64>), Stop> {
    let shown = path.display();
    let text = std::fs::read(path)
        .map_err(|e| Stop::error(format!("cannot read the plan {shown}: {e}")))?;
    let plan: Plan = serde_json::from_slice(&text)
        .map_err(|e| usage(format!("{shown} is no plan of prefetches: {e}")))?;
    if plan.version != VERSION {
        return Err(usage(format!(
            "{shown} is a plan of version {}; this mgz-instrument reads version {VERSION}",
            plan.version
        )));
    }
    let own = elf.build_id();
    if let Some(wanted) = &plan.build_id
        && !own.eq_ignore_ascii_case(wanted)
    {
        return Err(Stop::error(format!(
            "{shown} was made for another build of {} (build id {wanted}, and the file has {}); make the plan anew",
            input.display(),
            if own.is_empty() { "none" } else { &own }
        )));
    }
    let mut loads = BTreeMap::new();
    for load in plan.loads {
        let address = parsed(&shown, &load.address)?;
        if load.distance == 0 {
            return Err(usage(format!(
                "{shown}: the distance of {} is 0; a prefetch is at least one iteration ahead",
                load.address
            )));
        }
        let wanted = Wanted {
            kind: load.kind,
            distance: load.distance,
        };
        loads.insert(address, wanted);
    }
    let returns = plan.returns.iter().map(|text| parsed(&shown, text));
    Ok((Request::Loads(loads), returns.collect::<Result<_, _>>()?))
}

impl Outcomes {
    fn of(prefetches: &[Prefetch]) -> Outcomes {
        let mut all = Outcomes {
            placed: Vec::new(),
            refused: Vec::new(),
            moved: Vec::new(),
        };
        for prefetch in prefetches {
            let address = format!("{:#x}", prefetch.address);
            let function = demangle::readable(&prefetch.function);
            match &prefetch.result {
                Ok(placed) => all.placed.push(PlacedRow {
                    address,
                    kind: placed.kind,
                    distance: placed.distance,
                    function,
                }),
                Err(reason) => all.refused.push(RefusedRow {
                    address,
                    function,
                    reason: reason.clone(),
                }),
            }
        }
        all
    }

    /// The result as text.
    fn text(&self, input: &Path, output: &Path) -> String {
        let mut text = format!(
            "{} → {}\n{} prefetches placed, {} loads refused\n",
            input.display(),
            output.display(),
            self.placed.len(),
            self.refused.len()
        );
        for row in &self.placed {
            let kind = format!("{:?}", row.kind).to_lowercase();
            let ahead = if row.distance == 1 {
                "iteration"
            } else {
                "iterations"
            };
            let _ = writeln!(
                text,
                "  placed   {}  {kind}, {} {ahead} ahead  {}",
                row.address, row.distance, row.function
            );
        }
        for row in &self.refused {
            let _ = writeln!(
                text,
                "  refused  {}  {}: {}",
                row.address, row.function, row.reason
            );
        }
        text
    }
}
