//! Findings as SARIF 2.1.0, which code hosts show next to the lines.

use mgz_analyzer::findings::Finding;
use mgz_analyzer::report::Analysis;
use serde_json::{Value, json};

/// Findings that cost this part of the time or more are warnings, percent.
const WARNING: f64 = 10.0;

/// The path as SARIF requires it: relative to the source root if it is below it.
fn uri(file: &str, root: &str) -> String {
    let relative = file
        .strip_prefix(root)
        .map(|rest| rest.trim_start_matches('/'))
        .filter(|_| !root.is_empty());
    let (scheme, path) = match relative {
        Some(path) => ("", path),
        None if file.starts_with('/') => ("file://", file),
        None => ("", file),
    };
    let mut out = String::from(scheme);
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(byte as char)
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn location(file: &str, line: u32, root: &str) -> Value {
    let mut place = json!({"artifactLocation": {"uri": uri(file, root)}});
    if line > 0 {
        place["region"] = json!({"startLine": line});
    }
    json!({"physicalLocation": place})
}

fn result(finding: &Finding, rule: usize, root: &str) -> Value {
    let mut text = format!("{}: {}", finding.title, finding.finding);
    if !finding.advice.is_empty() {
        text.push_str(&format!(" Try: {}", finding.advice));
    }
    let mut value = json!({
        "ruleId": finding.kind,
        "ruleIndex": rule,
        "level": if finding.score >= WARNING { "warning" } else { "note" },
        "message": {"text": text},
        "rank": finding.score.clamp(0.0, 100.0),
        "partialFingerprints": {"mgz/v1": format!("{}:{}:{}", finding.kind, finding.function, finding.object)},
        "properties": {
            "score": finding.score,
            "function": finding.function,
            "object": finding.object,
            "time_pct": finding.time.value,
            "A_pct": finding.loads,
        },
    });
    if !finding.file.is_empty() {
        let mut at = location(&finding.file, finding.line, root);
        at["logicalLocations"] = json!([{"name": finding.function, "kind": "function"}]);
        value["locations"] = json!([at]);
        let also: Vec<Value> = finding
            .also
            .iter()
            .map(|place| location(&place.file, place.line, root))
            .collect();
        if !also.is_empty() {
            value["relatedLocations"] = also.into();
        }
    }
    value
}

/// The log. `root`: folder that paths are given relative to.
pub fn sarif_log(analysis: &Analysis, root: &str) -> Value {
    let mut rules: Vec<(&str, &str)> = Vec::new();
    for finding in &analysis.findings.list {
        if !rules.iter().any(|r| r.0 == finding.kind) {
            rules.push((finding.kind, &finding.title));
        }
    }
    let results: Vec<Value> = analysis
        .findings
        .list
        .iter()
        .map(|finding| {
            let rule = rules.iter().position(|r| r.0 == finding.kind).unwrap_or(0);
            result(finding, rule, root)
        })
        .collect();
    let rules: Vec<Value> = rules
        .iter()
        .map(|(id, name)| json!({"id": id, "name": id, "shortDescription": {"text": name}}))
        .collect();
    let notes: Vec<Value> = analysis
        .warnings
        .iter()
        .chain(Some(&analysis.findings.none).filter(|n| !n.is_empty()))
        .map(|text| json!({"level": "note", "message": {"text": text}}))
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "mgz",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "invocations": [{
                "executionSuccessful": true,
                "commandLine": analysis.summary.trace.command.join(" "),
                "toolExecutionNotifications": notes,
            }],
            "columnKind": "utf16CodeUnits",
            "results": results,
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_uris() {
        assert_eq!(uri("/home/me/src/a b.c", "/home/me"), "src/a%20b.c");
        assert_eq!(
            uri("/usr/include/x.h", "/home/me"),
            "file:///usr/include/x.h"
        );
        assert_eq!(uri("a.c", ""), "a.c");
    }
}
