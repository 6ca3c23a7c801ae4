//! Rows by function, line and object.

use crate::input::measured::{MeasuredCode, MeasuredLoad, MeasuredSamples};
use crate::measured::shares::{SampleSums, percent};
use crate::measured::{Measured, MeasuredRow};
use mgz_annotations_schema::SamplePopulation;
use std::collections::BTreeMap;

/// The samples of a trace as tables.
pub fn tables(samples: &MeasuredSamples) -> Measured {
    let weight = weights(samples);
    let mut whole = SampleSums::default();
    let mut of_code: Vec<SampleSums> = vec![SampleSums::default(); samples.code.len()];
    let mut of_object: Vec<SampleSums> = vec![SampleSums::default(); samples.objects.len()];
    let mut functions: BTreeMap<MeasuredCode, SampleSums> = BTreeMap::new();
    for load in &samples.loads {
        let weight = weight(load);
        whole.add(load, weight);
        of_code[load.code as usize].add(load, weight);
        of_object[load.object as usize].add(load, weight);
    }
    let key_of_code = |code: &MeasuredCode| MeasuredCode {
        module: code.module.clone(),
        function: code.function.clone(),
        ..MeasuredCode::default()
    };
    for load in &samples.loads {
        let key = key_of_code(&samples.code[load.code as usize]);
        functions.entry(key).or_default().add(load, weight(load));
    }
    let functions = functions.iter().map(|(code, sums)| MeasuredRow {
        function: code.function.clone(),
        module: code.module.clone(),
        ..row(sums, &whole)
    });
    let lines = samples.code.iter().zip(&of_code);
    let lines = lines.map(|(code, sums)| MeasuredRow {
        function: match code.inlined.is_empty() {
            true => code.function.clone(),
            false => code.inlined.clone(),
        },
        module: code.module.clone(),
        file: code.file.clone(),
        line: code.line,
        ..row(sums, &whole)
    });
    let objects = samples.objects.iter().zip(&of_object);
    let objects = objects.map(|(object, sums)| MeasuredRow {
        object: object.object.clone(),
        kind: object.kind.clone(),
        module: object.module.clone(),
        ..row(sums, &whole)
    });
    let drawn = drawn(samples);
    Measured {
        trace: None,
        of_all_loads: drawn.has_all_loads(),
        drawn,
        others: samples.others,
        of_recorded_code: None,
        loads: whole.numbers(),
        functions: sorted(functions.collect()),
        lines: sorted(lines.collect()),
        objects: sorted(objects.collect()),
    }
}

/// Weight of each sample: its period if all samples have one, else 1.
fn weights(samples: &MeasuredSamples) -> impl Fn(&MeasuredLoad) -> f64 {
    let known = samples.loads.iter().all(|load| load.period > 0);
    move |load| if known { load.period as f64 } else { 1.0 }
}

/// The accesses from which the samples are drawn, if that is the same for all.
fn drawn(samples: &MeasuredSamples) -> SamplePopulation {
    let mut all = samples.drawn.keys();
    match (all.next(), all.next()) {
        (Some(drawn), None) => *drawn,
        (None, _) => SamplePopulation::Unknown,
        _ => SamplePopulation::Mixed,
    }
}

fn row(sums: &SampleSums, whole: &SampleSums) -> MeasuredRow {
    MeasuredRow {
        share_pct: whole.all.share(sums.all).map(percent),
        loads: sums.numbers(),
        ..MeasuredRow::default()
    }
}

/// Rows by their share, then by name.
fn sorted(mut rows: Vec<MeasuredRow>) -> Vec<MeasuredRow> {
    let share = |row: &MeasuredRow| row.share_pct.map_or(0.0, |s| s[1]);
    let name = |row: &MeasuredRow| {
        let texts = [&row.module, &row.function, &row.file, &row.object];
        (texts.map(String::clone), row.line)
    };
    rows.sort_by(|a, b| {
        share(b)
            .total_cmp(&share(a))
            .then_with(|| name(a).cmp(&name(b)))
    });
    rows
}
