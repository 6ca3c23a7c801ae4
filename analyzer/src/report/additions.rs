//! Findings and measurements that are added to an analysis.

use crate::findings::{Finding, FindingList, Findings, SourceLine};
use crate::input::Trace;
use crate::measured::counters::counted_run;
use crate::report::questions::Questions;
use crate::report::{Analysis, measured_beside};
use crate::views::objects::add_fields;
use std::collections::BTreeSet;

/// Adds findings, and their data for other tables.
pub(super) fn add_found(analysis: &mut Analysis, found: Findings) {
    add_fields(&mut analysis.objects, found.fields);
    let trace_info = &mut analysis.summary.trace;
    trace_info.for_screen.extend(found.lacks.clone());
    trace_info.not_recorded.extend(found.lacks);
    analysis.findings = FindingList {
        list: found.list.into_iter().map(with_distinct_lines).collect(),
        none: found.none,
    };
}

/// Adds counters and memory samples of the processor. Returns the error if they are damaged.
pub(super) fn add_measured(
    analysis: &mut Analysis,
    trace: &Trace,
    questions: &Questions,
) -> Option<String> {
    let other = questions.measured.as_deref();
    let is_filtered = !questions.filter.is_empty();
    if is_filtered && other.is_some() {
        let sentence = "memory samples are of the whole run, so they are not shown with a filter";
        analysis.warnings.push(sentence.into());
    }
    if !is_filtered {
        let manifest = &trace.manifest;
        let predicted = analysis.summary.misses.as_ref();
        analysis.counters = counted_run(&manifest.counters, &manifest.caches, predicted);
    }
    let added = measured_beside::add(analysis, trace, other, is_filtered);
    let sentence = added.err()?;
    analysis.warnings.push(sentence.clone());
    Some(sentence)
}

/// Removes repeated lines from a finding's other lines, and its own line.
pub(super) fn with_distinct_lines(mut finding: Finding) -> Finding {
    let own = SourceLine {
        file: finding.file.clone(),
        line: finding.line,
    };
    let mut seen = BTreeSet::from([own]);
    finding.also.retain(|line| seen.insert(line.clone()));
    finding
}
