//! Elements of an object: their number in the block, and the fields that loads read.

use crate::data::object_map::length_bytes;
use crate::findings::fields::Fields;
use crate::findings::gains::Costs;
use crate::what_if::remedy::Load;
use std::collections::BTreeMap;

/// Layouts of the elements of some objects, by object.
pub(crate) type Layouts = BTreeMap<u32, Fields>;

/// Position of a load in the elements of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Address of the first element.
    pub(crate) first: u64,
    /// Number of the element.
    pub(crate) index: u64,
    /// Bytes from the begin of the element.
    pub(crate) offset: u64,
    /// Number of whole elements in the block.
    pub(crate) count: u64,
}

impl Place {
    /// The place of a load in elements of `element` bytes. None if the load is outside of whole
    /// elements, or if the block is unknown.
    pub(crate) fn of(load: &Load, element: u64) -> Option<Place> {
        let length = length_bytes(load.bytes, element);
        let into = load.offset().checked_sub(length)?;
        let count = (load.bytes.checked_sub(length)?).checked_div(element)?;
        let index = into / element;
        (index < count).then_some(Place {
            first: load.start + length,
            index,
            offset: into % element,
            count,
        })
    }
}

/// Fields of the elements of some objects. An error if no object has known elements.
pub(crate) fn layouts(costs: &Costs, objects: &[u32], target: &str) -> Result<Layouts, String> {
    let mut all = crate::findings::fields::of_objects(&costs.context);
    all.retain(|object, fields| objects.contains(object) && !fields.list.is_empty());
    match all.is_empty() {
        true => Err(format!(
            "{target}: the elements are not known, or they are single words; build the program with debug information (-g), or name another object"
        )),
        false => Ok(all),
    }
}

/// By field in order of offsets: its offset and bytes, without overlaps.
pub(crate) fn field_ranges(fields: &Fields) -> Vec<(u64, u64)> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for field in &fields.list {
        let bytes = field
            .bytes
            .clamp(1, fields.element - field.offset.min(fields.element - 1));
        let end = field.offset + bytes;
        match parts
            .last_mut()
            .filter(|last| field.offset < last.0 + last.1)
        {
            Some(last) => last.1 = last.1.max(end - last.0),
            None => parts.push((field.offset, bytes)),
        }
    }
    parts
}

/// Blocks of at most this many bytes are nodes if their elements are unknown. Source: Chosen.
const MAX_BYTES_OF_NODE: u64 = 1024;

/// By object: bytes of the elements that are nodes, or 0 if whole blocks are nodes. An error if
/// neither is known for an object.
pub(crate) fn nodes(costs: &Costs, objects: &[u32], target: &str) -> Result<Nodes, String> {
    let seen = crate::findings::fields::of_objects(&costs.context);
    let largest = |object| costs.context.objects.and_then(|o| o.largest(object));
    let mut nodes = Nodes::new();
    for &object in objects {
        let typed = costs.context.element(object).bytes;
        let walked = seen.get(&object).map_or(0, |fields| fields.element);
        let is_small = largest(object).is_some_and(|bytes| bytes <= MAX_BYTES_OF_NODE);
        let element = if typed > 0 { typed } else { walked };
        if element > 0 || is_small {
            nodes.insert(object, element);
        }
    }
    match nodes.is_empty() {
        true => Err(format!(
            "{target}: the nodes are not known, as the object has no elements of a known size; build the program with debug information (-g), or record with mgz run --heap"
        )),
        false => Ok(nodes),
    }
}

/// Bytes of the elements that are nodes, by object; 0 if whole blocks are nodes.
pub(crate) type Nodes = BTreeMap<u32, u64>;

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// First address.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) bytes: u64,
    /// Bytes from its begin to the load.
    pub(crate) offset: u64,
}

impl Node {
    /// The node that a load reads. None if it does not read these nodes.
    pub(crate) fn of(load: &Load, nodes: &Nodes) -> Option<Node> {
        let element = *nodes.get(&load.object)?;
        if let Some(place) = Place::of(load, element) {
            return Some(Node {
                start: load.address - place.offset,
                bytes: element,
                offset: place.offset,
            });
        }
        (1..=MAX_BYTES_OF_NODE)
            .contains(&load.bytes)
            .then_some(Node {
                start: load.start,
                bytes: load.bytes,
                offset: load.offset(),
            })
    }
}

/// The part that contains an offset, with the bytes from the part's begin.
pub(crate) fn part_at(parts: &[(u64, u64)], offset: u64) -> Option<(usize, u64)> {
    let at = parts.partition_point(|p| p.0 <= offset).checked_sub(1)?;
    let into = offset - parts[at].0;
    (into < parts[at].1).then_some((at, into))
}

#[cfg(test)]
pub(crate) fn fields(element: u64, list: &[(u64, u64, u64)]) -> Fields {
    use crate::findings::fields::FieldShare;
    let field = |&(offset, bytes, rows): &(u64, u64, u64)| FieldShare {
        offset,
        bytes,
        rows,
        ..FieldShare::default()
    };
    Fields {
        element,
        list: list.iter().map(field).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_counted_from_the_begin_of_the_block() {
        let load = |address: u64, bytes: u64| Load {
            address,
            start: 1000,
            bytes,
            ..Load::default()
        };
        let place = Place::of(&load(1000 + 50, 96), 24).unwrap();
        assert_eq!((place.index, place.offset, place.count), (2, 2, 4));
        // An array with destructors begins with its length.
        let place = Place::of(&load(1000 + 8, 8 + 96), 24).unwrap();
        assert_eq!((place.first, place.index, place.offset), (1008, 0, 0));
        assert_eq!(Place::of(&load(1000 + 97, 100), 24), None);
        assert_eq!(Place::of(&load(1000, 0), 24), None);
    }

    #[test]
    fn fields_that_overlap_are_one_part() {
        let parts = field_ranges(&fields(32, &[(0, 8, 1), (4, 8, 1), (24, 16, 1)]));
        assert_eq!(parts, [(0, 12), (24, 8)]);
        assert_eq!(part_at(&parts, 11), Some((0, 11)));
        assert_eq!(part_at(&parts, 12), None);
        assert_eq!(part_at(&parts, 25), Some((1, 1)));
    }
}
