//! What to do about a run of which nothing was recorded.

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
