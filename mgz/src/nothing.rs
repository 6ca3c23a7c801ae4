//! Remedies for a run without any recorded loads.

use crate::windows_only;
use mgz_annotations_schema::NotRecorded;
use mgz_annotations_schema::coverage::Program;
use mgz_annotations_schema::manifest::Manifest;
use mgz_annotations_schema::{coverage, shell};
use serde_json::Value;

/// A sentence for the user of `mgz run`: where the time was spent, and the command that records it.
pub fn remedy(manifest: &Value, command: &[String]) -> String {
    let given = command.first().map_or("", String::as_str);
    let command = shell::line(command.iter().map(String::as_str));
    let manifest: Manifest = serde_json::from_value(manifest.clone()).unwrap_or_default();
    let mut lacks = coverage::lacks(&manifest);
    // Reads by libraries on the program's behalf are not the reason for an empty trace.
    lacks.retain(|lack| !lack.is_reads_for_program);
    if let Some(others) = other_programs(&manifest.coverage.programs, given) {
        return others;
    }
    let short = match manifest.mode.has_all_loads() {
        true => "the program's own code executed no load".to_owned(),
        false if windows_only::is_recorded_in(&manifest) => {
            format!("a short program gets more windows by `mgz run --overhead=20% -- {command}`")
        }
        false => format!("a short program is recorded whole by `mgz run --full -- {command}`"),
    };
    let Some(first) = lacks.first() else {
        return format!("nothing was recorded; {short}");
    };
    // Code generated at run time cannot be recorded.
    if manifest
        .coverage
        .generated_share()
        .is_some_and(|share| share > 0.5)
    {
        return first.text.clone();
    }
    match coverage::missing_libraries(&lacks) {
        [] => format!("{}; {short}", first.text),
        libraries => format!(
            "{}: `mgz run --libs={} -- {command}`",
            first.text,
            libraries.join(",")
        ),
    }
}

/// Source: Chosen.
const MAX_NAMED_PROGRAMS: usize = 3;

/// A file's name without its folders.
fn short(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The remedy if the program has started others that do the work. Those with a name similar to the
/// given program's come first.
fn other_programs(programs: &[Program], given: &str) -> Option<String> {
    let mut others: Vec<&Program> = programs
        .iter()
        .filter(|p| p.why == NotRecorded::Plain)
        .collect();
    // The largest program is the likeliest to do the work.
    let size = |p: &Program| std::fs::metadata(&p.path).map_or(0, |m| m.len());
    others.sort_by_key(|p| {
        let is_other = !short(&p.path).starts_with(short(given));
        (is_other, std::cmp::Reverse(size(p)), p.times)
    });
    let first = others.first()?;
    let mut names: Vec<&str> = others.iter().map(|p| short(&p.path)).collect();
    names.dedup();
    let more = match names.len().saturating_sub(MAX_NAMED_PROGRAMS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.truncate(MAX_NAMED_PROGRAMS);
    Some(format!(
        "the work was left to other programs, which are not recorded: {}{more}; record one of them by itself, with the arguments that it is started with: `mgz run -- {} …`",
        names.join(", "),
        shell::line(std::iter::once(first.path.as_str()))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn programs_that_do_the_work_are_named() {
        let of = |path: &str, times| Program {
            path: path.into(),
            times,
            why: "not instrumented".into(),
        };
        let programs = [
            of("/no/as", 1),
            of("/no/env", 15),
            of("/opt/bin/python3.11", 1),
        ];
        let said = other_programs(&programs, "python3").unwrap();
        assert!(said.contains("python3.11, as, env;"), "{said}");
        assert!(
            said.ends_with("`mgz run -- /opt/bin/python3.11 …`"),
            "{said}"
        );
        assert_eq!(other_programs(&[], "python3"), None);
    }

    fn of(path: &str, samples: u64, reads: &[&str]) -> String {
        let file = json!({"path": path, "instrumented": false, "needed": true, "samples": samples, "reads_for": reads});
        let coverage = json!({"files": [file], "time_samples": 100});
        let mut manifest = serde_json::to_value(Manifest::default()).unwrap();
        manifest["coverage"]
            .as_object_mut()
            .unwrap()
            .extend(coverage.as_object().unwrap().clone());
        remedy(&manifest, &["./app".into()])
    }

    #[test]
    fn libraries_with_the_time_are_named_as_mgz_takes_them() {
        let said = of("/usr/lib/libwork.so.1", 90, &[]);
        assert!(
            said.contains("`mgz run --libs=libwork.so.1 -- ./app`"),
            "{said}"
        );
    }

    #[test]
    fn full_is_no_remedy_for_a_run_that_was_full() {
        let mut manifest = serde_json::to_value(Manifest::default()).unwrap();
        manifest["mode"] = json!("full");
        assert_eq!(
            remedy(&manifest, &["./app".into()]),
            "nothing was recorded; the program's own code executed no load"
        );
    }

    #[test]
    fn short_programs_are_recorded_whole() {
        let said = of("/usr/lib/libc.so.6", 2, &["strcmp"]);
        assert!(
            said.ends_with("recorded whole by `mgz run --full -- ./app`"),
            "{said}"
        );
    }
}
