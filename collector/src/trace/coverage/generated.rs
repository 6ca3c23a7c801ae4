//! Functions of generated code, by the samples in them.

use mgz_annotations_schema::coverage::GeneratedFunction;
use mgz_elf::demangle::readable;
use mgz_generated_code::GeneratedName;
use mgz_generated_code::watch::NamedProcesses;
use mgz_perf::code_samples::CodeSample;
use std::collections::BTreeMap;

/// Maximum number of functions listed separately. Source: Chosen.
const MAX_FUNCTIONS: usize = 1000;
/// Name for all further functions.
const OTHERS: &str = "[other generated functions]";

/// Time by function.
#[derive(Clone, Debug, Default)]
pub(crate) struct FunctionTimes {
    functions: BTreeMap<GeneratedName, u64>,
}

impl FunctionTimes {
    /// Names samples. Returns those that have a name.
    pub(crate) fn add(
        &mut self,
        samples: &[CodeSample],
        names: &NamedProcesses,
    ) -> Vec<CodeSample> {
        let mut by_process: BTreeMap<u32, Vec<&CodeSample>> = BTreeMap::new();
        for sample in samples {
            by_process.entry(sample.process).or_default().push(sample);
        }
        let mut named = Vec::new();
        for (process, samples) in by_process {
            let places: Vec<(u64, u64)> = samples.iter().map(|s| (s.time_ns, s.address)).collect();
            let found = (names.processes.get(&process)).map(|code| code.names_of(&places));
            let found = found.unwrap_or_else(|| vec![None; places.len()]);
            for (sample, name) in samples.into_iter().zip(found) {
                if let Some(name) = name {
                    *self.functions.entry(name.clone()).or_default() += sample.weight;
                    named.push(*sample);
                }
            }
        }
        named
    }

    /// The functions with estimated samples. Only the first ones are listed separately.
    pub(crate) fn functions(&self, samples_per_weight: f64) -> Vec<GeneratedFunction> {
        let mut all: Vec<(&GeneratedName, u64)> = self
            .functions
            .iter()
            .map(|(name, weight)| (name, (*weight as f64 * samples_per_weight).round() as u64))
            .collect();
        all.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
        let rest: u64 = all.iter().skip(MAX_FUNCTIONS).map(|(_, n)| n).sum();
        all.truncate(MAX_FUNCTIONS);
        let mut functions: Vec<GeneratedFunction> = all.into_iter().map(of_name).collect();
        if rest > 0 {
            functions.push(GeneratedFunction {
                function: OTHERS.into(),
                samples: rest,
                ..GeneratedFunction::default()
            });
        }
        functions.retain(|f| f.samples > 0);
        functions
    }
}

fn of_name((name, samples): (&GeneratedName, u64)) -> GeneratedFunction {
    GeneratedFunction {
        function: readable(&name.function),
        tier: name.tier.clone(),
        file: name.file.clone(),
        line: name.line,
        source: name.source.name().into(),
        samples,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_generated_code::naming::ProcessCode;
    use mgz_generated_code::{GeneratedBlock, NameSource};

    #[test]
    fn samples_have_the_names_of_their_process() {
        let block = |start, name: &str| GeneratedBlock {
            start,
            end: start + 16,
            begin_ns: 0,
            end_ns: u64::MAX,
            name: GeneratedName::of_text(name, NameSource::PerfMap),
        };
        let mut names = NamedProcesses::default();
        for (process, name) in [(1, "one"), (2, "two")] {
            let mut code = ProcessCode::default();
            code.add_source(vec![block(0x100, name), block(0x200, "both")]);
            names.processes.insert(process, code);
        }
        let sample = |process, address, weight| CodeSample {
            process,
            address,
            weight,
            time_ns: 5,
            in_mapping: true,
        };
        let samples = [
            sample(1, 0x100, 10),
            sample(2, 0x108, 20),
            sample(1, 0x200, 30),
            sample(2, 0x20f, 40),
            sample(2, 0x210, 50),
            sample(3, 0x100, 60),
        ];
        let mut times = FunctionTimes::default();
        let mut named = times.add(&samples, &names);
        named.sort_by_key(|s| s.weight);
        assert_eq!(named, samples[..4]);
        let found: Vec<(String, u64, String)> = (times.functions(0.1).into_iter())
            .map(|f| (f.function, f.samples, f.source))
            .collect();
        let expected = [("both", 7), ("two", 2), ("one", 1)];
        assert_eq!(
            found,
            expected.map(|(f, n)| (f.to_owned(), n, "perf map".to_owned()))
        );
    }

    #[test]
    fn functions_are_bounded() {
        let mut times = FunctionTimes::default();
        for number in 0..MAX_FUNCTIONS as u64 + 5 {
            let name = GeneratedName::of_text(&format!("f{number}"), NameSource::PerfMap);
            times.functions.insert(name, 2 + number);
        }
        let functions = times.functions(1.0);
        assert_eq!(functions.len(), MAX_FUNCTIONS + 1);
        assert_eq!(functions[MAX_FUNCTIONS].function, OTHERS);
        assert_eq!(functions[MAX_FUNCTIONS].samples, 2 + 3 + 4 + 5 + 6);
    }
}
