//! Bytes of an object's elements that loads read: by field, or by offset if only the step of loads
//! is known.

use crate::data::elements::Element;
use crate::findings::context::Context;
use crate::findings::params;
use crate::findings::windows::{NO_OFFSET, Row};
use crate::util::fast_hash::Mixed;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Loads of a field.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FieldShare {
    /// Name in the source, or `+24` if only the offset is known.
    pub field: String,
    /// Offset from the begin of the element.
    pub offset: u64,
    /// Bytes of the field, or of the largest load if the field is unknown.
    pub bytes: u64,
    /// Rows that read the field.
    pub rows: u64,
    /// Their share of the object's rows, in percent.
    #[serde(rename = "A_pct")]
    pub share: f64,
}

/// Loads of an object by field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    /// Bytes of an element.
    pub element: u64,
    /// Fields by offset.
    pub list: Vec<FieldShare>,
}

/// Fields of all objects whose elements are larger than one word.
pub(crate) fn of_objects(context: &Context) -> BTreeMap<u32, Fields> {
    let Some(objects) = context.objects else {
        return BTreeMap::new();
    };
    // By object: offset, rows and greatest size.
    let mut seen: HashMap<u32, HashMap<u32, (u64, u32), Mixed>, Mixed> = HashMap::default();
    let steps = steps(context);
    let nothing = Element::default();
    let element = |object: u32| {
        let known = objects.objects.get(object as usize);
        known.map_or(&nothing, |o| &o.element)
    };
    let mut last = (0, 0);
    let mut note = |row: &Row| {
        if row.object != last.0 {
            let of_type = element(row.object).bytes;
            let step = steps.get(&row.object).copied().unwrap_or(0);
            // An element of one word has no fields, but a walk may skip some elements.
            last = (
                row.object,
                if of_type > params::MAX_BYTES_WITHOUT_FIELDS {
                    of_type
                } else {
                    step
                },
            );
        }
        if last.1 > params::MAX_BYTES_WITHOUT_FIELDS && row.into != NO_OFFSET {
            let at = (u64::from(row.into) % last.1) as u32;
            let of = seen.entry(row.object).or_default().entry(at).or_default();
            *of = (of.0 + 1, of.1.max(row.size));
        }
    };
    context
        .windows
        .iter()
        .flat_map(|w| &w.rows)
        .for_each(&mut note);
    let made = seen.into_iter().filter_map(|(object, offsets)| {
        let rows: u64 = offsets.values().map(|o| o.0).sum();
        let of_type = element(object);
        let element = match of_type.bytes {
            bytes if bytes > params::MAX_BYTES_WITHOUT_FIELDS => bytes,
            _ => steps.get(&object).copied()?,
        };
        (rows >= params::MIN_ROWS_FOR_FIELDS)
            .then(|| (object, make(of_type, element, &offsets, rows)))
    });
    made.collect()
}

/// By object: the most frequent regular step of its loads.
fn steps(context: &Context) -> HashMap<u32, u64, Mixed> {
    let mut rows: HashMap<(u32, u64), u64, Mixed> = HashMap::default();
    for facts in context.sites.values() {
        let step = facts.regular_step().map(i64::unsigned_abs);
        let sizes = params::MAX_BYTES_WITHOUT_FIELDS + 1..=params::MAX_ELEMENT_BYTES;
        if let Some(step) = step.filter(|s| sizes.contains(s)) {
            *rows.entry((facts.main_object(), step)).or_default() += facts.rows;
        }
    }
    let mut best: HashMap<u32, (u64, u64), Mixed> = HashMap::default();
    for ((object, step), n) in rows {
        let of = best.entry(object).or_default();
        *of = (*of).max((n, step));
    }
    best.into_iter()
        .map(|(object, (_, step))| (object, step))
        .collect()
}

fn make(
    of_type: &Element,
    element: u64,
    offsets: &HashMap<u32, (u64, u32), Mixed>,
    rows: u64,
) -> Fields {
    let mut list: BTreeMap<u64, FieldShare> = BTreeMap::new();
    for (&offset, &(n, size)) in offsets {
        let offset = u64::from(offset);
        let known = of_type.field(offset);
        let begin = known.map_or(offset, |f| f.offset);
        let share = list.entry(begin).or_insert_with(|| FieldShare {
            field: known.map_or_else(|| format!("+{begin}"), |f| f.name.clone()),
            offset: begin,
            bytes: known.map_or(0, |f| f.bytes),
            ..FieldShare::default()
        });
        share.rows += n;
        if known.is_none() {
            share.bytes = share.bytes.max(u64::from(size));
        }
    }
    let mut list: Vec<FieldShare> = list.into_values().collect();
    for share in &mut list {
        share.share = share.rows as f64 * 100.0 / rows as f64;
    }
    if list.len() > params::MAX_FIELDS_OF_OBJECT {
        list.sort_by_key(|f| (std::cmp::Reverse(f.rows), f.offset));
        list.truncate(params::MAX_FIELDS_OF_OBJECT);
        list.sort_by_key(|f| f.offset);
    }
    Fields { element, list }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_count_for_the_field_that_they_begin_in() {
        let element = Element::parse(24, "0:8:next,8:8:key,16:4:flags");
        let offsets: HashMap<u32, (u64, u32), Mixed> =
            [(0, (10, 8)), (8, (5, 8)), (12, (5, 4)), (21, (20, 1))]
                .into_iter()
                .collect();
        let fields = make(&element, 24, &offsets, 40);
        let told: Vec<(&str, u64, u64, u64, f64)> = (fields.list.iter())
            .map(|f| (f.field.as_str(), f.offset, f.bytes, f.rows, f.share))
            .collect();
        assert_eq!(
            told,
            [
                ("next", 0, 8, 10, 25.0),
                ("key", 8, 8, 10, 25.0),
                ("+21", 21, 1, 20, 50.0)
            ]
        );
    }
}
