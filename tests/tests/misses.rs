//! Predicted cache misses of programs whose misses are known by construction, from samples and from
//! full traces.

use mgz_tests::programs::{self, Variant};
use mgz_tests::session::{self, analysis_json, record_program};
use serde_json::Value;
use std::path::Path;

fn analysed(trace: &Path) -> Value {
    analysis_json(trace, &["--caches", "L1=32K/8,L2=1M/16,L3=8M/16"])
}

#[test]
fn samples_tell_what_misses_beyond_them() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("misses")).unwrap();
    let variant = Variant::O2;
    let built = programs::build(
        "misses/misses",
        variant,
        &["-g", "-Wl,--no-as-needed", "-lm"],
        dir.path(),
    )
    .unwrap();
    let Some(original) = built else { return };
    let app = session::instrument(&original, "soft", &[]).unwrap().path;
    // Misses per load at 32 KiB, 1 MiB and 8 MiB: a loop over 512 KiB; random positions in 64 MiB;
    // data that is never read again, eight words a line.
    let at_random = |lines: f64| (-lines / f64::from(1 << 20)).exp();
    let cases = [
        ("chase512k", "4", [1.0, 0.0, 0.0], 0.05),
        (
            "table64m",
            "3",
            [1.0, at_random(16384.0), at_random(131_072.0)],
            0.06,
        ),
        ("stream", "1", [0.125; 3], 0.01),
    ];
    for (kind, rounds, truth, most) in cases {
        let trace = dir.path().join(kind);
        let ring = ["--mode", "ring", "--period", "10007", "--window", "1000"];
        record_program(&ring, &trace, &app, &[kind, rounds]);
        let report = analysed(&trace);
        let levels = report["summary"]["misses"]["levels"].as_array().unwrap();
        for (level, truth) in levels.iter().zip(truth) {
            let of = |at: usize| level["ratio"][at].as_f64().unwrap();
            assert!(
                (of(1) - truth).abs() <= most && of(0) <= of(1) && of(1) <= of(2),
                "{kind}: {truth} in {level}"
            );
        }
        let manifest = std::fs::read_to_string(trace.join("manifest.json")).unwrap();
        assert!(manifest.contains("\"caches\""), "{manifest}");
    }
    // A full trace contains the whole loop over 512 KiB: 50 rounds, of which the first is cold.
    let trace = dir.path().join("full");
    record_program(&["--mode", "full"], &trace, &app, &["chase512k", "1"]);
    let report = analysed(&trace);
    let lines = report["lines"].as_array().unwrap();
    let chase = lines.iter().find(|l| l["function"] == "chase").unwrap();
    let ratio = |level: usize| {
        chase["misses"]["levels"][level]["ratio"][1]
            .as_f64()
            .unwrap()
    };
    assert!(ratio(0) > 0.99 && ratio(1) < 0.021, "{chase}");
}
