//! Steps that skip most of each line, as when one field of large elements is read.

use crate::data::elements::{Element, Field};
use crate::data::memory_units::LINE_BYTES;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{Layout, Remedy, Rule, Told, misses};
use crate::findings::params;
use crate::findings::sites::SiteFacts;
use crate::findings::windows::NO_OFFSET;
use mgz_annotations_schema::ProgramChange;
use std::collections::BTreeMap;

pub(super) const STRIDED_RULE: Rule = Rule {
    kind: "strided",
    name: "a few bytes of each element",
    claims,
    tell,
    remedy: Remedy::OfObject("split"),
    changes: &[ProgramChange::PrefetchStrided],
    ..Rule::PLAIN
};

fn claims(context: &Context, facts: &SiteFacts) -> Option<i64> {
    let step = facts.regular_step()?;
    if !context.is_frequent(facts) || facts.takes_turns() {
        return None;
    }
    if step.unsigned_abs() < params::MIN_WASTEFUL_STEP_BYTES
        || step.unsigned_abs() <= u64::from(facts.size)
    {
        return None;
    }
    let used: u64 = used(context, facts.main_object(), step)
        .iter()
        .map(|r| r.1 - r.0)
        .sum();
    let fetched = step
        .unsigned_abs()
        .min(LINE_BYTES * used.div_ceil(8).max(1));
    (used * params::MIN_FETCHED_OVER_USED_BYTES <= fetched.min(step.unsigned_abs()))
        .then_some(step.abs())
}

/// Ranges of bytes that loads with this step read in an object's elements. Offsets are relative to
/// the first byte read, unless the type is known.
fn used(context: &Context, object: u32, step: i64) -> Vec<(u64, u64)> {
    let element = step.unsigned_abs();
    let mut start = u64::MAX;
    let sites: Vec<u32> = (context.sites.values())
        .filter(|f| f.main_object() == object && f.regular_step().map(i64::abs) == Some(step.abs()))
        .map(|f| f.site)
        .collect();
    let mut offsets: BTreeMap<u64, u64> = BTreeMap::new();
    let rows = || {
        let each = sites.iter().flat_map(|&s| {
            context
                .rows_of(s)
                .take(params::MAX_ROWS_INSPECTED_FOR_BYTES)
        });
        each.map(|r| r.1).filter(|r| r.object == object)
    };
    // The begin of the object is unknown, so the lowest offset counts as the begin of an element.
    for row in rows() {
        start = start.min(row.address % element);
    }
    // If the type is known, the begin of an element is also known.
    let knows = context.element(object).bytes == element;
    for row in rows() {
        let at = match row.into {
            into if knows && into != NO_OFFSET => u64::from(into),
            _ => (row.address % element).wrapping_sub(start),
        };
        let end = offsets.entry(at).or_default();
        *end = (*end).max(at + u64::from(row.size));
    }
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (from, to) in offsets {
        match ranges.last_mut().filter(|last| from <= last.1) {
            Some(last) => last.1 = last.1.max(to),
            None => ranges.push((from, to)),
        }
    }
    ranges
}

/// Names of the fields in a range of bytes.
fn fields(element: &Element, (from, to): (u64, u64)) -> String {
    let inside = |f: &&Field| f.offset < to && from < f.offset + f.bytes;
    let names: Vec<&str> = (element.fields.iter())
        .filter(inside)
        .map(|f| f.name.as_str())
        .collect();
    match names[..] {
        [] => "no field".into(),
        [first, .., last] if names.len() > 3 => format!("{first} … {last}"),
        _ => names.join("/"),
    }
}

fn tell(context: &Context, cause: &Cause) -> Told {
    let step = cause.step.unwrap_or(LINE_BYTES as i64);
    let object = cause.objects.first().map_or(0, |o| o.0);
    let ranges = used(context, object, step);
    let bytes: u64 = ranges.iter().map(|r| r.1 - r.0).sum();
    let of = step.unsigned_abs();
    let element = context.element(object);
    let known = Some(element).filter(|e| e.bytes == of && !e.fields.is_empty());
    let texts: Vec<String> = ranges
        .iter()
        .take(4)
        .map(|r| match known {
            Some(element) => format!("{} at {}–{}", fields(element, *r), r.0, r.1 - 1),
            None => format!("{}–{}", r.0, r.1 - 1),
        })
        .collect();
    let places = match known {
        Some(_) => texts.join(", "),
        None => format!("relative offsets {}", texts.join(", ")),
    };
    Told {
        mechanism: format!(
            "{bytes} of each element's {of} bytes are read ({places}), but whole lines are fetched",
        ),
        evidence: misses(context, cause),
        advice: "split the elements: keep the fields that this loop reads in an array of their own (structure of arrays, or hot and cold parts)".into(),
        layout: Some(Layout::SplitElements),
    }
}
