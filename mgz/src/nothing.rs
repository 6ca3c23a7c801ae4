//! Remedies for a run without any recorded loads.

use mgz_annotations_schema::coverage;
use mgz_annotations_schema::manifest::Manifest;
use serde_json::Value;

/// A sentence for the user of `mgz run`: where the time went, and what records it.
pub fn remedy(manifest: &Value) -> String {
    let manifest: Option<Manifest> = serde_json::from_value(manifest.clone()).ok();
    let sentences = manifest
        .as_ref()
        .map(coverage::sentences)
        .unwrap_or_default();
    // Reads by the C library on the program's behalf are not the reason for an empty trace.
    let others = |s: &&String| !s.starts_with("what the program lets");
    let sentences: Vec<&String> = sentences.iter().filter(others).collect();
    let short = "a short program is recorded whole by `mgz run --full`";
    match sentences
        .iter()
        .find(|s| s.contains("mgz-instrument --libs="))
    {
        Some(said) => said.replace("`mgz-instrument --libs=", "`mgz run --libs="),
        None => match sentences.first() {
            Some(said) => format!("{said}; {short}"),
            None => format!("nothing was recorded; {short}"),
        },
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
        remedy(&manifest)
    }

    #[test]
    fn libraries_with_the_time_are_named_as_mgz_takes_them() {
        let said = of("/usr/lib/libwork.so.1", 90, &[]);
        assert!(said.contains("`mgz run --libs=libwork"), "{said}");
    }

    #[test]
    fn short_programs_are_recorded_whole() {
        let said = of("/usr/lib/libc.so.6", 2, &["strcmp"]);
        assert!(
            said.ends_with("recorded whole by `mgz run --full`"),
            "{said}"
        );
    }
}
