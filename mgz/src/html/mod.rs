//! The report: the viewer of `report/`, built once and kept in the source tree, with the data of
//! one trace embedded.
//!
//! Each part of the data is a `<script type="application/octet-stream">` with base64 of gzip of
//! JSON. That alphabet has no special character of HTML, so no name in a trace can end the element;
//! the viewer shows all names as text.

mod columns;
mod machine;
mod sources;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};
use std::io::Write;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;

/// The viewer: markup, style and code in one file.
const VIEWER: &str = include_str!("../../../report/dist/report.html");
/// Begin of the page's content security policy.
const POLICY_PREFIX: &str = "default-src 'none'";
/// Position of the data in the page.
const PLACE: &str = "<!--mgz-data-->";
/// Tables that are written by columns, each as a separate part.
const TABLES: [&str; 4] = ["functions", "lines", "loops", "objects"];
/// Values that are separate parts.
const PARTS: [&str; 6] = [
    "heat_map",
    "time_zoom",
    "location_zoom",
    "call_paths",
    "measured",
    "python",
];

/// Options of a report.
#[derive(Clone, Debug, Default)]
pub struct HtmlOptions {
    /// Source lines that were hit, and the machine code of the hottest.
    pub source: bool,
    /// The trace's folder; `None` if there is no trace.
    pub trace: Option<PathBuf>,
    /// Command line to be shown instead of the trace's; empty: the trace's is shown.
    pub command: Vec<String>,
    /// Trace with memory samples of another run; `None`: the trace's own.
    pub measured: Option<PathBuf>,
}

/// A part of the data, with its name in the viewer.
pub type Part = (&'static str, Value);

/// The file.
pub fn page(parts: &[Part]) -> anyhow::Result<Vec<u8>> {
    filled(VIEWER, parts)
}

/// The page of `mgz serve`. Its code may send requests to its own server only.
pub fn served(parts: &[Part]) -> anyhow::Result<Vec<u8>> {
    let allowed = VIEWER.replacen(POLICY_PREFIX, "default-src 'none'; connect-src 'self'", 1);
    filled(&allowed, parts)
}

fn filled(viewer: &str, parts: &[Part]) -> anyhow::Result<Vec<u8>> {
    let (head, tail) = viewer
        .split_once(PLACE)
        .context("the viewer has no place for data")?;
    let mut out = Vec::with_capacity(viewer.len() + (1 << 20));
    out.extend_from_slice(head.as_bytes());
    for part in packed(parts) {
        out.extend(part?);
    }
    out.extend_from_slice(tail.as_bytes());
    Ok(out)
}

/// The elements of the parts. Each is compressed in its own thread, since compression takes most of
/// the time of a report.
fn packed(parts: &[Part]) -> Vec<anyhow::Result<Vec<u8>>> {
    std::thread::scope(|scope| {
        let packing: Vec<_> = parts
            .iter()
            .map(|(name, value)| {
                let thread = std::thread::Builder::new();
                let begun = thread.spawn_scoped(scope, move || element(name, value));
                begun.map_err(|_| (name, value))
            })
            .collect();
        let end = |begun: Result<ScopedJoinHandle<'_, _>, (&&'static str, &Value)>| match begun {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // No thread could be created.
            Err((name, value)) => element(name, value),
        };
        packing.into_iter().map(end).collect()
    })
}

/// Adds the source lines of both sides to a comparison.
pub fn add_sources(comparison: &mut Value) {
    comparison["sources"] = sources::of_comparison(comparison);
}

/// Everything of one trace by name. `run` is what the first screen needs.
pub fn report_parts(analysis: &Value, manifest: &Value, options: &HtmlOptions) -> Vec<Part> {
    let empty = Map::new();
    let all = analysis.as_object().unwrap_or(&empty);
    let apart = |key: &str| TABLES.contains(&key) || PARTS.contains(&key);
    let mut run: Map<String, Value> = all
        .iter()
        .filter(|(key, _)| !apart(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    run.insert("manifest".into(), run_card(manifest));
    if !options.command.is_empty() {
        run.insert("command".into(), options.command.clone().into());
    }
    let mut parts = vec![("run", Value::Object(run))];
    // Files are read beside the tables.
    let code = std::thread::scope(|scope| {
        let reading = || match options.source {
            true => code_parts(all, manifest, options.trace.as_deref()),
            false => Vec::new(),
        };
        let begun = std::thread::Builder::new().spawn_scoped(scope, reading);
        for name in TABLES {
            let rows = all.get(name).and_then(Value::as_array);
            let rows = rows.map(Vec::as_slice).unwrap_or_default();
            parts.push((name, columns::columns_of_rows(rows)));
        }
        for name in PARTS {
            if let Some(value) = all.get(name).filter(|v| !v.is_null()) {
                parts.push((name, value.clone()));
            }
        }
        match begun {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // The system has no more threads.
            Err(_) => reading(),
        }
    });
    parts.extend(code);
    parts
}

/// Source lines that were hit, and the machine code of the hottest.
fn code_parts(all: &Map<String, Value>, manifest: &Value, trace: Option<&Path>) -> Vec<Part> {
    let lines = all.get("lines").and_then(Value::as_array);
    let lines = lines.map(Vec::as_slice).unwrap_or_default();
    let python = all
        .get("python")
        .and_then(|tables| tables["lines"].as_array());
    let with_python = [lines, python.map(Vec::as_slice).unwrap_or_default()].concat();
    let mut parts = vec![("sources", sources::source_lines(&with_python, manifest))];
    if let Some(trace) = trace {
        parts.push(("disassembly", machine::machine_code(lines, manifest, trace)));
    }
    parts
}

/// Parts of a manifest that the report shows in addition to the analysis.
fn run_card(manifest: &Value) -> Value {
    const KEYS: [&str; 20] = [
        "tool",
        "command",
        "started",
        "host",
        "cpu",
        "caches",
        "backend",
        "backend_why",
        "mode",
        "trigger",
        "trigger_why",
        "period",
        "window",
        "rate",
        "overhead",
        "recording_seconds",
        "state",
        "wall_seconds",
        "cpu_seconds",
        "problems",
    ];
    let mut card: Map<String, Value> = KEYS
        .iter()
        .filter_map(|&key| Some((key.to_string(), manifest.get(key)?.clone())))
        .collect();
    card.insert("threads".into(), manifest["threads"].clone());
    card.insert("totals".into(), manifest["totals"].clone());
    Value::Object(card)
}

/// The element of a part.
fn element(name: &str, value: &Value) -> anyhow::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::new(6));
    // Written in one piece, because the encoder clears its buffer for each.
    packed.write_all(&serde_json::to_vec(value)?)?;
    let text = STANDARD.encode(packed.finish()?);
    let element =
        format!("<script type=\"application/octet-stream\" id=\"mgz-{name}\">{text}</script>\n");
    Ok(element.into_bytes())
}

/// A part of a page.
#[cfg(test)]
fn unpack(page: &str, name: &str) -> Value {
    use std::io::Read;
    let begin = format!("id=\"mgz-{name}\">");
    let rest = page.split_once(&begin).unwrap().1;
    let bytes = STANDARD.decode(rest.split('<').next().unwrap()).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes.as_slice())
        .read_to_string(&mut text)
        .unwrap();
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn example() -> Value {
        json!({
            "format": "mgz-analysis", "version": 1,
            "summary": {"A": 5, "trace": {"command": ["</script><img src=x onerror=alert(1)>"]}},
            "functions": [{"function": "a<b>", "A": 3, "D_hist": [{"from": 0, "to": 0, "count": 1}]}, {"function": "c", "A": 2}],
            "lines": [], "loops": [], "objects": [],
            "location_zoom": {"root": {}}, "measured": {"samples": 7},
            "warnings": ["</script>"],
        })
    }

    #[test]
    fn all_parts_come_back_and_none_is_markup() {
        let options = HtmlOptions {
            source: true,
            ..HtmlOptions::default()
        };
        let parts = report_parts(&example(), &json!({"cpu": "x", "host": "h"}), &options);
        let page = page(&parts).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(!page.contains("onerror"));
        let run = unpack(&page, "run");
        assert_eq!(run["summary"]["A"], 5);
        assert_eq!(run["manifest"]["cpu"], "x");
        assert_eq!(run["warnings"][0], "</script>");
        // The tables of samples may be long, so the first screen does not wait for them.
        assert!(run.get("measured").is_none());
        assert_eq!(unpack(&page, "measured")["samples"], 7);
        let functions = unpack(&page, "functions");
        assert_eq!(functions["rows"], 2);
        assert_eq!(functions["columns"]["function"], json!(["a<b>", "c"]));
        assert_eq!(functions["columns"]["D_hist"][1], json!(null));
        assert!(page.contains("mgz-location_zoom") && !page.contains("mgz-heat_map"));
    }

    #[test]
    fn the_viewer_allows_no_network() {
        assert!(VIEWER.contains("default-src 'none'"));
        assert!(!VIEWER.contains("connect-src"));
        assert_eq!(VIEWER.matches(PLACE).count(), 1);
        assert_eq!(VIEWER.matches(POLICY_PREFIX).count(), 1);
        let served = String::from_utf8(served(&[]).unwrap()).unwrap();
        assert!(served.contains("content=\"default-src 'none'; connect-src 'self'; script-src"));
    }
}
