//! Functions of code that was generated at run time, by their names from the compiler.

use super::{Coverage, MIN_LOOKS, MIN_SHARE, list, percent, short};
use serde::{Deserialize, Serialize};

/// Generated functions with a smaller share are not named in a sentence. Source: Chosen.
const MIN_NAMED_SHARE: f64 = 0.01;

/// Sorts functions, those with most samples first.
fn sort_functions(functions: &mut [GeneratedFunction]) {
    functions.sort_by(|a, b| {
        let by_samples = b.samples.cmp(&a.samples);
        by_samples.then_with(|| a.identity().cmp(&b.identity()))
    });
}

/// A function that was generated at run time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GeneratedFunction {
    /// Name of the function from its compiler.
    pub function: String,
    /// Kind of its code (`optimized`); empty if unknown.
    pub tier: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Source of the name: `perf map`, `jitdump`, `GDB interface`.
    pub source: String,
    /// Part of `time_samples` in the function.
    pub samples: u64,
}

impl GeneratedFunction {
    fn identity(&self) -> (&str, &str, &str, u32, &str) {
        (
            &self.function,
            &self.tier,
            &self.file,
            self.line,
            &self.source,
        )
    }

    /// Name and place for people: `work a.js:3`.
    pub fn readable(&self) -> String {
        match (self.file.as_str(), self.line) {
            ("", _) => self.function.clone(),
            (file, 0) => format!("{} {}", self.function, short(file)),
            (file, line) => format!("{} {}:{line}", self.function, short(file)),
        }
    }
}

/// Adds functions and commands of another trace to those of one.
pub(super) fn add(
    (functions, commands): (&mut Vec<GeneratedFunction>, &mut Vec<String>),
    (other_functions, other_commands): (Vec<GeneratedFunction>, Vec<String>),
) {
    for function in other_functions {
        let same = |f: &&mut GeneratedFunction| f.identity() == function.identity();
        match functions.iter_mut().find(same) {
            Some(known) => known.samples += function.samples,
            None => functions.push(function),
        }
    }
    sort_functions(functions);
    commands.extend(other_commands);
    commands.sort();
    commands.dedup();
}

impl Coverage {
    /// Sets the functions of generated code.
    pub fn set_functions(&mut self, mut functions: Vec<GeneratedFunction>) {
        sort_functions(&mut functions);
        self.generated_functions = functions;
    }

    /// Share of the time in generated code without a name, if that is known.
    pub fn unnamed_share(&self) -> Option<f64> {
        let named: u64 = self.generated_functions.iter().map(|f| f.samples).sum();
        self.share(self.generated_samples.map(|all| all.saturating_sub(named)))
    }

    /// Share of the time in a generated function, if that is known.
    pub fn share_of_function(&self, function: &GeneratedFunction) -> Option<f64> {
        self.share(Some(function.samples))
    }

    /// True if generated code has a share of the time that is to be reported.
    pub fn has_much_generated(&self) -> bool {
        let share = self.generated_share();
        self.time_samples >= MIN_LOOKS && share.is_some_and(|share| share >= MIN_SHARE)
    }

    /// The remedy for generated code without names.
    pub fn naming_remedy(&self) -> String {
        match self.naming_commands.as_slice() {
            [] => "a perf map or a jitdump file names it, if its compiler writes one".into(),
            commands => format!("`{}` names it", commands.join("`, `")),
        }
    }

    /// The hottest generated functions, and the part of the time without names, behind a semicolon.
    pub(super) fn names_of_generated(&self) -> String {
        let mut text = String::new();
        let named = self.generated_functions.iter().filter_map(|f| {
            let share = self.share_of_function(f)?;
            (share >= MIN_NAMED_SHARE).then(|| format!("{} {}", f.readable(), percent(share)))
        });
        let named: Vec<String> = named.collect();
        if !named.is_empty() {
            text.push_str(&format!("; its functions: {}", list(named)));
        }
        let unnamed = self.unnamed_share().unwrap_or(0.0);
        if unnamed >= MIN_NAMED_SHARE {
            text.push_str(&format!(
                "; generated code without names, {} of the time: {}",
                percent(unnamed),
                self.naming_remedy()
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, file: &str, samples: u64) -> GeneratedFunction {
        GeneratedFunction {
            function: name.into(),
            file: file.into(),
            line: 3,
            samples,
            ..GeneratedFunction::default()
        }
    }

    fn coverage(functions: Vec<GeneratedFunction>, commands: &[&str]) -> Coverage {
        let mut coverage = Coverage {
            time_samples: 1000,
            generated_samples: Some(800),
            naming_commands: commands.iter().map(|c| (*c).to_owned()).collect(),
            ..Coverage::default()
        };
        coverage.set_functions(functions);
        coverage
    }

    #[test]
    fn functions_are_named_and_the_rest_is_one_sentence() {
        let some = vec![function("cold", "", 5), function("work", "/app/a.js", 600)];
        let node = ["node --perf-basic-prof"];
        assert_eq!(
            coverage(some, &node).names_of_generated(),
            "; its functions: work a.js:3 60%; generated code without names, 20% of the time: `node --perf-basic-prof` names it"
        );
        assert_eq!(
            coverage(Vec::new(), &node).names_of_generated(),
            "; generated code without names, 80% of the time: `node --perf-basic-prof` names it"
        );
        assert_eq!(
            coverage(vec![function("all", "", 800)], &[]).names_of_generated(),
            "; its functions: all 80%"
        );
        assert!(
            coverage(Vec::new(), &[])
                .names_of_generated()
                .ends_with("a perf map or a jitdump file names it, if its compiler writes one")
        );
    }

    #[test]
    fn shares_are_of_all_samples() {
        let all = coverage(
            vec![function("work", "", 600), function("more", "", 300)],
            &[],
        );
        assert_eq!(
            all.share_of_function(&all.generated_functions[0]),
            Some(0.6)
        );
        // Rounding may give functions more samples than there are.
        assert_eq!(all.unnamed_share(), Some(0.0));
        assert!(all.has_much_generated());
        assert_eq!(Coverage::default().unnamed_share(), None);
        assert!(!Coverage::default().has_much_generated());
    }
}
