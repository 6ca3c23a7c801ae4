//! Memory samples of a recording, for `measured.parquet`.
//!
//! A sample contains addresses. Their names are looked up here, while the files of the recording
//! may still exist, so that the table is self-contained. Files that have changed since are not
//! used.
//!
//! * [`code`]: names of instructions.
//! * [`generated`]: names of instructions in generated code.
//! * [`data`]: names of accessed memory.

pub mod code;
pub mod data;
pub mod generated;

use crate::import::modules::Modules;
use code::Code;
use data::Data;
use generated::GeneratedNames;
use mgz_annotations_schema::SamplePopulation;
use mgz_annotations_schema::manifest::{Measured, MeasuredEvent};
use mgz_collector::trace::measured::{MeasuredRow, write_measured};
use mgz_perf_data::Session;
use mgz_perf_data::memory::{Drawn, Level, MemorySample, Operation};
use std::path::Path;

/// Writes the samples of a session into a trace folder and counts them. `None` if it has none.
pub fn write(
    session: &Session<'_>,
    modules: &Modules,
    generated: &GeneratedNames,
    folder: &Path,
) -> anyhow::Result<Option<Measured>> {
    let memory = &session.memory;
    if memory.list.is_empty() {
        return Ok(None);
    }
    let events = memory.events.iter().map(|event| MeasuredEvent {
        name: event.name.clone(),
        drawn: population(event.drawn),
        samples: 0,
    });
    let mut counts = Measured {
        samples: memory.list.len() as u64,
        of_no_access: memory.of_no_access,
        repeated: memory.repeated,
        events: events.collect(),
        ..Measured::default()
    };
    let known = code::Files::of(session, modules);
    code::with_lookup(&known, generated, |mut code| {
        let mut data = Data::new(session, &known);
        let rows = memory.list.iter().map(|sample| {
            let row = row(session, sample, &mut code, &mut data);
            count(&mut counts, sample, &row);
            row
        });
        write_measured(folder, rows)
    })?;
    counts.events.retain(|event| event.samples > 0);
    Ok(Some(counts))
}

/// The population in files of a trace.
fn population(drawn: Drawn) -> SamplePopulation {
    match drawn {
        Drawn::Loads => SamplePopulation::Loads,
        Drawn::Stores => SamplePopulation::Stores,
        Drawn::Operations => SamplePopulation::Operations,
        Drawn::SlowLoads(cycles) => SamplePopulation::SlowLoads(cycles),
        Drawn::Cycles => SamplePopulation::Cycles,
        Drawn::Unknown => SamplePopulation::Unknown,
    }
}

/// Adds a row to the counts.
fn count(counts: &mut Measured, sample: &MemorySample, row: &MeasuredRow) {
    counts.loads += u64::from(sample.operation == Operation::Load);
    counts.stores += u64::from(sample.operation == Operation::Store);
    counts.unknown_level += u64::from(sample.source.level() == Level::Unknown);
    counts.unnamed += u64::from(row.code.function.is_empty());
    if let Some(event) = counts.events.get_mut(sample.event as usize) {
        event.samples += 1;
    }
}

/// A sample with its names.
fn row(
    session: &Session<'_>,
    sample: &MemorySample,
    code: &mut Code<'_, '_>,
    data: &mut Data<'_, '_>,
) -> MeasuredRow {
    let time = sample.time.unwrap_or(u64::MAX);
    let source = sample.source;
    let drawn = session.memory.event(sample).map(|event| event.drawn);
    let address = sample.address;
    MeasuredRow {
        process: sample.process,
        thread: sample.thread,
        time: sample.time,
        cpu: sample.cpu,
        ip: sample.ip,
        code: match sample.in_kernel {
            true => code.kernel(),
            false => {
                (sample.ip).map_or_else(Default::default, |ip| code.names(sample.process, time, ip))
            }
        },
        address,
        object: address.map_or_else(Default::default, |address| {
            data.names(sample.process, time, address)
        }),
        operation: sample.operation.name(),
        level: source.level().name(),
        latency: sample.latency,
        tlb: source.tlb(),
        snoop: source.snoop(),
        remote: source.is_remote(),
        hops: source.hops(),
        locked: source.locked(),
        blocked: source.blocked(),
        node: sample.physical.and_then(|at| session.memory.nodes.of(at)),
        physical: sample.physical,
        period: Some(sample.period).filter(|&period| period > 0),
        drawn: population(drawn.unwrap_or_default()),
    }
}

/// Sentences about missing names or samples. `generated`: unnamed samples in generated code, which
/// have a sentence of their own.
pub fn problems(counts: &Measured, generated: u64) -> Vec<String> {
    let mut list = Vec::new();
    let unnamed = counts.unnamed.saturating_sub(generated);
    if unnamed > 0 {
        list.push(format!(
            "the code of {unnamed} of {} memory samples has no name: its files are not here, or are others by now",
            counts.samples
        ));
    }
    if counts.unknown_level > 0 {
        list.push(format!(
            "{} of {} memory samples do not name the level that served them, or name an unknown one",
            counts.unknown_level, counts.samples
        ));
    }
    list
}
