//! Remedies for a run without any recorded loads.

use mgz_annotations_schema::manifest::Manifest;
use mgz_annotations_schema::{coverage, shell};
use serde_json::Value;

/// A sentence for the user of `mgz run`: where the time went, and the command that records it.
pub fn remedy(manifest: &Value, command: &[String]) -> String {
    let command = shell::line(command.iter().map(String::as_str));
    let manifest: Manifest = serde_json::from_value(manifest.clone()).unwrap_or_default();
    let mut lacks = coverage::lacks(&manifest);
    // Reads by libraries on the program's behalf are not the reason for an empty trace.
    lacks.retain(|lack| !lack.is_reads_for_program);
    let short = format!("a short program is recorded whole by `mgz run --full -- {command}`");
    let Some(first) = lacks.first() else {
        return format!("nothing was recorded; {short}");
    };
    match coverage::missing_libraries(&lacks) {
        [] => format!("{}; {short}", first.text),
        libraries => format!(
            "{}: `mgz run --libs={} -- {command}`",
            first.text,
            libraries.join(",")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
    fn short_programs_are_recorded_whole() {
        let said = of("/usr/lib/libc.so.6", 2, &["strcmp"]);
        assert!(
            said.ends_with("recorded whole by `mgz run --full -- ./app`"),
            "{said}"
        );
    }
}
