//! Steps that skip most of each line, as when one field of large elements is read.

use crate::data::elements::{Element, Field};
use crate::data::memory_units::LINE_BYTES;
use crate::findings::cause::Cause;
use crate::findings::context::Context;
use crate::findings::mechanisms::{Layout, Remedy, Rule, Told, misses};
use crate::findings::params;
use crate::findings::sites::SiteFacts;
use crate::findings::unrolled;
use crate::findings::windows::NO_OFFSET;
use mgz_annotations_schema::ProgramChange;
use std::collections::BTreeMap;

pub(super) const STRIDED_RULE: Rule = Rule {
    kind: "strided",
    name: "a few bytes of each element",
    claims,
    tell,
    python: "keep the field or column that this line reads in an array of its own (np.ascontiguousarray of a column, one array per field instead of a structured dtype)",
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
    let object = facts.main_object();
    let used: u64 = used(context, object, (step, step.unsigned_abs()), |_| true)
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
/// the first byte read, unless the type is known. `counts`: the load instructions to look at.
fn used(
    context: &Context,
    object: u32,
    (step, element): (i64, u64),
    counts: impl Fn(&SiteFacts) -> bool,
) -> Vec<(u64, u64)> {
    let mut start = u64::MAX;
    let sites: Vec<u32> = (context.sites.values())
        .filter(|f| f.main_object() == object && f.regular_step().map(i64::abs) == Some(step.abs()))
        .filter(|f| counts(f))
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
    let main = cause.sites.first().and_then(|s| context.sites.get(s));
    let object = main.map_or(0, SiteFacts::main_object);
    let element = context.element(object);
    let of = match main.is_some_and(|f| unrolled::are_apart(context, f, element.bytes)) {
        true => element.bytes,
        false => step.unsigned_abs(),
    };
    // Other loops over the same elements read other fields.
    let main_loop: Vec<_> = cause.inner.first().copied().into_iter().collect();
    let of_loop = |f: &SiteFacts| context.users.is_in(f.group.piece(), &main_loop);
    let ranges = used(context, object, (step, of), of_loop);
    let bytes: u64 = ranges.iter().map(|r| r.1 - r.0).sum();
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
    let is_part = main.is_some_and(|f| unrolled::row_step(context, f) < step.unsigned_abs());
    let unit = match is_part && known.is_none() {
        true => "",
        false => " element's",
    };
    Told {
        mechanism: format!(
            "{bytes} of each{unit} {of} bytes are read ({places}), but whole lines are fetched",
        ),
        evidence: misses(context, cause),
        advice: "split the elements: keep the fields that this loop reads in an array of their own (structure of arrays, or hot and cold parts)".into(),
        layout: Some(Layout::SplitElements),
    }
}

#[cfg(test)]
mod tests {
    use crate::data::code_map::{CodeMap, FunctionName, LineName, LinePiece};
    use crate::data::group::{AccessClass, Group};
    use crate::findings::cause::causes;
    use crate::findings::context::{Context, MeasuredTime, Observed};
    use crate::findings::windows::{NO_OFFSET, Row, Window};
    use crate::misses::{Hierarchy, caches};

    /// Two functions inlined into one, each with a loop over elements of 128 bytes.
    fn code() -> CodeMap {
        let line = |function: &str| LineName {
            function: function.into(),
            file: "a.c".into(),
            line: 3,
            ..LineName::default()
        };
        let piece = |line| LinePiece {
            function: 0,
            line,
            loops: vec![line, 9],
            chain: Vec::new(),
        };
        let mut code = CodeMap::new();
        code.functions = vec![FunctionName::default()];
        code.lines = vec![line("total"), line("count")];
        code.pieces = vec![piece(0), piece(1)];
        code
    }

    /// A window of a loop that reads fields at these offsets.
    fn window(piece: u32, fields: &'static [u64]) -> Window {
        let element = |i: u64| {
            fields.iter().map(move |field| Row {
                site: 10 * piece + *field as u32,
                address: (1 << 20) + i * 128 + field,
                group: Group::new(piece, AccessClass::Strided),
                size: 8,
                into: NO_OFFSET,
                first: true,
                ..Row::default()
            })
        };
        Window {
            rows: (0..100).flat_map(element).collect(),
            ..Window::default()
        }
    }

    fn told(windows: &[Window]) -> Vec<(String, String)> {
        let code = code();
        let observed = Observed::new(&code, windows, None);
        let hierarchy = Hierarchy::new(caches::typical(), None);
        let context = Context::new(
            &code,
            (None, None),
            (windows, observed),
            (hierarchy, None),
            MeasuredTime::default(),
        );
        let tell = |cause| super::tell(&context, cause).mechanism;
        let mut told: Vec<(String, String)> = (causes(&context).iter())
            .filter(|cause| cause.rule.kind == "strided")
            .map(|cause| (cause.line.function.clone(), tell(cause)))
            .collect();
        told.sort();
        told
    }

    #[test]
    fn each_loop_tells_the_fields_that_it_reads_itself() {
        let read = |bytes: u64, places: &str| {
            format!(
                "{bytes} of each element's 128 bytes are read (relative offsets {places}), but whole lines are fetched"
            )
        };
        assert_eq!(
            told(&[window(0, &[24]), window(1, &[48, 56])]),
            [
                ("count".into(), read(16, "0–15")),
                ("total".into(), read(8, "0–7")),
            ]
        );
    }
}
