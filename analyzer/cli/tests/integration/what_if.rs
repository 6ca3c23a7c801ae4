//! `mgz-analyze what-if` on recordings of real programs.

use crate::analyze;
use crate::screens::unpack;
use serde_json::Value;

/// Runs `what-if` on a kept trace.
fn asked(name: &str, remedies: &[&str]) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    unpack(name, folder.path());
    let trace = folder.path().to_str().unwrap();
    let mut words = vec!["what-if", trace, "--format", "json"];
    words.extend(remedies.iter().flat_map(|remedy| ["--remedy", remedy]));
    let done = analyze(&words);
    let document = serde_json::from_slice(&done.stdout).unwrap_or_default();
    (document, String::from_utf8(done.stderr).unwrap())
}

#[test]
fn without_a_remedy_those_for_the_findings_are_listed() {
    let (document, errors) = asked("transpose", &[]);
    let rows = document["remedies"].as_array().expect(&errors);
    let known: Vec<&str> = rows
        .iter()
        .filter(|row| row["not_known"].is_null())
        .filter_map(|row| row["remedy"].as_str())
        .collect();
    assert!(!known.is_empty(), "{document}");
    // Each can be asked as it is listed.
    for remedy in known {
        let (answer, errors) = asked("transpose", &[remedy]);
        assert!(
            answer["summary"]["saved_pct"].is_number(),
            "{remedy}: {errors}"
        );
        assert_ne!(answer["summary"]["target"], "", "{remedy}");
    }
}

#[test]
fn no_gain_exceeds_the_cost() {
    for name in ["fields", "list", "join"] {
        let (document, errors) = asked(name, &[]);
        let rows = document["remedies"].as_array().expect(&errors);
        for row in rows.iter().filter(|row| row["not_known"].is_null()) {
            let remedy = row["remedy"].as_str().unwrap();
            let (answer, errors) = asked(name, &[remedy]);
            let number = |key: &str| answer["summary"][key].as_f64().expect(&errors);
            let is_gain = answer["summary"]["reason"].is_null();
            if is_gain && !remedy.starts_with("huge-pages") {
                assert!(
                    number("saved_pct") <= number("cost_pct_hi") + 0.1,
                    "{answer}"
                );
            }
        }
    }
}

#[test]
fn unknown_targets_have_near_names() {
    let (_, errors) = asked("fields", &["prefetch of mases"]);
    assert!(errors.contains("the nearest names are masses"), "{errors}");
    let (_, errors) = asked("list", &["pool of no such object"]);
    assert!(errors.contains("the nearest names of objects"), "{errors}");
}
