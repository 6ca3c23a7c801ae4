//! Predicted misses next to the measured ones.
//!
//! Rows are matched by name: functions by module and function, lines by module, file and line,
//! objects by module and name. Names that several rows share are not matched.

use crate::input::Trace;
use crate::input::measured::{MeasuredCode, MeasuredSamples, read_measured};
use crate::measured::tables::tables;
use crate::measured::{Measured, MeasuredLoads, MeasuredMisses};
use crate::misses::{Misses, Range};
use crate::report::Analysis;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Reads the memory samples of a trace, or of another one, and adds them to the analysis.
/// `filtered` is true if the analysis covers only a part of the trace; the samples always cover the
/// whole.
pub fn add(
    analysis: &mut Analysis,
    trace: &Trace,
    other: Option<&Path>,
    filtered: bool,
) -> Result<(), String> {
    if filtered {
        return Ok(());
    }
    let Some(samples) = read_measured(other.unwrap_or(&trace.folder))? else {
        return other.map_or(Ok(()), |folder| Err(no_samples(folder)));
    };
    let mut measured = tables(&samples);
    measured.trace = other.map(|folder| folder.display().to_string());
    let numbers: Vec<String> = analysis.lines.iter().map(|l| l.line.to_string()).collect();
    compare(
        &mut measured,
        &samples,
        &Predictions::of(analysis, &numbers),
    );
    analysis.measured = Some(measured);
    Ok(())
}

/// The sentence for a trace without memory samples, if some were requested.
pub(crate) fn no_samples(folder: &Path) -> String {
    format!(
        "{}: the trace has no memory samples; make one of a recording of perf mem with mgz-record --import",
        folder.display()
    )
}

/// Rows by name; `None` if several rows share the name.
type ByName<'a> = HashMap<[&'a str; 3], Option<&'a Misses>>;

fn by_name<'a>(rows: impl Iterator<Item = ([&'a str; 3], &'a Option<Misses>)>) -> ByName<'a> {
    let mut found: ByName<'a> = HashMap::new();
    for (name, misses) in rows {
        let entry = found.entry(name);
        entry
            .and_modify(|known| *known = None)
            .or_insert(misses.as_ref());
    }
    found
}

/// The predicted misses of an analysis.
#[derive(Default)]
struct Predictions<'a> {
    whole: Option<&'a Misses>,
    /// By module and function.
    functions: ByName<'a>,
    /// By module, file and number.
    lines: ByName<'a>,
    /// By module, name and kind.
    objects: ByName<'a>,
}

impl<'a> Predictions<'a> {
    /// Indexes the predictions. `numbers` has the numbers of the lines as texts.
    fn of(analysis: &'a Analysis, numbers: &'a [String]) -> Predictions<'a> {
        let functions = analysis.functions.iter();
        let functions = functions.map(|f| ([&f.module[..], &f.function, ""], &f.loads.misses));
        let lines = analysis.lines.iter().zip(numbers);
        let lines = lines.filter(|(line, _)| line.line > 0);
        let lines = lines.map(|(l, number)| ([&l.module[..], &l.file, number], &l.loads.misses));
        let objects = analysis.objects.iter();
        let objects = objects.map(|o| ([&o.module[..], &o.object, o.kind.as_str()], &o.misses));
        Predictions {
            whole: analysis.summary.misses.as_ref(),
            functions: by_name(functions),
            lines: by_name(lines),
            objects: by_name(objects),
        }
    }
}

/// Enters the predictions.
fn compare(measured: &mut Measured, samples: &MeasuredSamples, predicted: &Predictions<'_>) {
    let of_all_loads = measured.of_all_loads;
    for row in &mut measured.functions {
        let name = [&row.module[..], &row.function, ""];
        enter(&mut row.loads, predicted.functions.get(&name), of_all_loads);
    }
    for row in &mut measured.lines {
        let number = row.line.to_string();
        let name = [&row.module[..], &row.file, &number];
        enter(&mut row.loads, predicted.lines.get(&name), of_all_loads);
    }
    for row in &mut measured.objects {
        let name = [&row.module[..], &row.object, &row.kind];
        enter(&mut row.loads, predicted.objects.get(&name), of_all_loads);
    }
    whole(measured, samples, predicted);
}

/// Compares the whole run. The prediction covers only recorded code, so only samples of this code
/// are used. If no recorded code is known, the measured misses of the whole stay unchanged.
fn whole(measured: &mut Measured, samples: &MeasuredSamples, predicted: &Predictions<'_>) {
    let is_recorded = |code: &MeasuredCode| {
        let name = [&code.module[..], &code.function, ""];
        predicted.functions.contains_key(&name)
    };
    let recorded = (samples.code.iter().zip(0..)).filter(|(code, _)| is_recorded(code));
    let recorded: HashSet<u32> = recorded.map(|(_, number)| number).collect();
    if recorded.is_empty() || predicted.whole.is_none() {
        return;
    }
    let mut part = samples.clone();
    part.loads.retain(|load| recorded.contains(&load.code));
    measured.loads.misses = tables(&part).loads.misses;
    measured.of_recorded_code = Some(part.loads.len() as u64);
    let of_all_loads = measured.of_all_loads;
    enter(&mut measured.loads, Some(&predicted.whole), of_all_loads);
}

/// Enters the prediction of a row.
fn enter(loads: &mut MeasuredLoads, predicted: Option<&Option<&Misses>>, of_all_loads: bool) {
    let Some(predicted) = predicted.copied().flatten() else {
        return;
    };
    for measured in &mut loads.misses {
        let level = predicted.levels.iter().find(|l| l.level == measured.level);
        measured.predicted = level.and_then(|l| l.ratio);
        measured.differs = measured
            .predicted
            .filter(|_| of_all_loads)
            .map(|predicted| is_apart(measured, predicted));
    }
}

fn is_apart(measured: &MeasuredMisses, predicted: Range) -> bool {
    measured.measured[2] < predicted[0] || predicted[2] < measured.measured[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::measured::{MeasuredLoad, ServedBy};
    use crate::misses::LevelMisses;
    use mgz_annotations_schema::SamplePopulation;

    fn samples(drawn: SamplePopulation) -> MeasuredSamples {
        let code = |function: &str, line| MeasuredCode {
            module: "a".into(),
            function: function.into(),
            file: "a.c".into(),
            line,
            ..MeasuredCode::default()
        };
        let load = |number: u32| MeasuredLoad {
            code: number % 2,
            object: 0,
            // `walk` misses, `main` and the rest do not.
            served: [ServedBy::Memory, ServedBy::L1][(number % 2) as usize],
            latency: None,
            tlb_miss: None,
            hitm: None,
            remote: None,
            node: None,
            period: 0,
        };
        MeasuredSamples {
            loads: (0..2000).map(load).collect(),
            others: 5,
            drawn: HashMap::from([(drawn, 2000)]),
            code: vec![code("walk", 7), code("[kernel]", 0)],
            objects: vec![Default::default()],
        }
    }

    fn misses(ratio: Range) -> Option<Misses> {
        let level = |level: &str| LevelMisses {
            level: level.into(),
            ratio: Some(ratio),
            ..LevelMisses::default()
        };
        Some(Misses {
            levels: vec![level("L1"), level("L2")],
            ..Misses::default()
        })
    }

    #[test]
    fn intervals_without_a_common_point_differ() {
        let (few, all) = (misses([0.1, 0.2, 0.3]), misses([0.9, 0.99, 1.0]));
        let predicted = Predictions {
            whole: all.as_ref(),
            functions: HashMap::from([(["a", "walk", ""], few.as_ref())]),
            lines: HashMap::from([(["a", "a.c", "7"], all.as_ref())]),
            ..Predictions::default()
        };
        let samples = samples(SamplePopulation::Loads);
        let mut measured = tables(&samples);
        compare(&mut measured, &samples, &predicted);
        let of = |loads: &MeasuredLoads| loads.misses.iter().map(|m| m.differs).collect::<Vec<_>>();
        let walk = &measured.functions[1];
        assert_eq!((walk.function.as_str(), walk.loads.samples), ("walk", 1000));
        assert_eq!(of(&walk.loads), [Some(true), Some(true), None]);
        assert_eq!(of(&measured.functions[0].loads), [None; 3], "no prediction");
        let line = measured.lines.iter().find(|l| l.line == 7).unwrap();
        assert_eq!(of(&line.loads), [Some(false), Some(false), None]);
        // The whole covers only the recorded code.
        assert_eq!(measured.of_recorded_code, Some(1000));
        assert_eq!(of(&measured.loads), [Some(false), Some(false), None]);
        assert_eq!((measured.loads.samples, measured.others), (2000, 5));
    }

    #[test]
    fn samples_of_slow_loads_say_nothing_about_a_prediction() {
        let few = misses([0.1, 0.2, 0.3]);
        let predicted = Predictions {
            functions: HashMap::from([(["a", "walk", ""], few.as_ref())]),
            ..Predictions::default()
        };
        let samples = samples(SamplePopulation::SlowLoads(30));
        let mut measured = tables(&samples);
        compare(&mut measured, &samples, &predicted);
        let walk = measured.functions.iter().find(|f| f.function == "walk");
        let first = &walk.unwrap().loads.misses[0];
        assert_eq!(
            (first.predicted, first.differs),
            (Some([0.1, 0.2, 0.3]), None)
        );
        assert!(!measured.of_all_loads);
    }

    #[test]
    fn a_name_that_several_rows_have_is_not_matched() {
        let (few, all) = (misses([0.1, 0.2, 0.3]), misses([0.9, 0.99, 1.0]));
        let rows = [
            (["a", "f", ""], &few),
            (["a", "f", ""], &all),
            (["a", "g", ""], &all),
        ];
        let found = by_name(rows.into_iter());
        assert_eq!(found.get(&["a", "f", ""]), Some(&None));
        assert_eq!(found.get(&["a", "g", ""]), Some(&all.as_ref()));
    }
}
