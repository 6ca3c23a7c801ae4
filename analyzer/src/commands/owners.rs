//! Which data object each access of a stream belongs to.

use crate::columns;
use crate::data::memory_units::Page;
use crate::data::object_map::{Object, Resolver, UNKNOWN};
use crate::input::Trace;
use crate::output::document::{Document, DocumentColumn};
use serde_json::Value;
use std::collections::HashMap;

/// Finds the objects of accesses in order. It caches pages that belong to one object for the whole
/// run.
#[derive(Default)]
pub struct Owners {
    resolver: Option<Resolver>,
    /// Objects of whole pages; `None`: rows are resolved one by one.
    pages: HashMap<(u32, Page), Option<u32>>,
    last: Option<(u32, Page, Option<u32>)>,
}

/// Columns of an object in tables.
pub const OBJECT_COLUMNS: [DocumentColumn; 3] = columns![object: Text, kind: Text, type: Text];

impl Owners {
    /// Owners for a trace; none are known if the trace has no objects.
    pub fn open(trace: &Trace, document: &mut Document) -> Owners {
        let resolver =
            crate::input::objects::read_objects(&trace.folder).unwrap_or_else(|sentence| {
                document.warnings.push(sentence);
                None
            });
        Owners {
            resolver,
            ..Owners::default()
        }
    }

    /// True if objects are known.
    pub fn known(&self) -> bool {
        self.resolver.is_some()
    }

    /// Appends the objects of consecutive accesses of a thread, by process and thread. Times of
    /// accesses within a run are interpolated.
    pub fn fill(
        &mut self,
        (process, thread): (u32, u32),
        address: &[u64],
        times: (u64, u64),
        out: &mut Vec<u32>,
    ) {
        let Some(resolver) = &self.resolver else {
            return out.resize(out.len() + address.len(), UNKNOWN);
        };
        let steps = address.len().max(2) as u64 - 1;
        let span = times.1.saturating_sub(times.0);
        let stack = resolver.own_stack(process, thread, times.0);
        for (i, &address) in address.iter().enumerate() {
            let page = Page::of(address);
            let owner = match self.last {
                Some((p, at, owner)) if (p, at) == (process, page) => owner,
                _ => *self.pages.entry((process, page)).or_insert_with(|| {
                    (!resolver.mixed(process, address))
                        .then(|| resolver.find(process, address, times.0))
                }),
            };
            self.last = Some((process, page, owner));
            out.push(owner.or_else(|| stack.at(address)).unwrap_or_else(|| {
                resolver.find(
                    process,
                    address,
                    times.0 + (u128::from(span) * i as u128 / u128::from(steps)) as u64,
                )
            }));
        }
    }

    /// An object.
    pub fn object(&self, number: u32) -> Object {
        let found = self
            .resolver
            .as_ref()
            .and_then(|r| r.objects.get(number as usize).cloned());
        found.unwrap_or_else(Object::not_known)
    }

    /// The cells for [`OBJECT_COLUMNS`].
    pub fn cells(&self, number: u32) -> Vec<Value> {
        let object = self.object(number);
        vec![
            Value::from(object.name),
            Value::from(object.kind.as_str()),
            Value::from(object.of_type),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::object_map::Instance;
    use mgz_annotations_schema::ObjectKind;

    #[test]
    fn an_access_belongs_to_who_lived_there_then() {
        let object = |name: &str| Object {
            kind: ObjectKind::Heap,
            name: name.into(),
            ..Object::default()
        };
        let life = |start, bytes, begin_ns, end_ns, object| Instance {
            weight: 1.0,
            process: 1,
            start,
            bytes,
            begin_ns,
            end_ns,
            object,
            times: 1,
        };
        let resolver = Resolver::new(
            vec![object(""), object("page"), object("early"), object("late")],
            &[
                life(0x1000, 0x1000, 0, u64::MAX, 1),
                life(0x2000, 64, 0, 50, 2),
                life(0x2000, 64, 50, u64::MAX, 3),
            ],
        );
        let mut owners = Owners {
            resolver: Some(resolver),
            ..Owners::default()
        };
        let mut out = Vec::new();
        owners.fill(
            (1, 5),
            &[0x1008, 0x2000, 0x2000, 0x2008, 0x9000],
            (0, 100),
            &mut out,
        );
        assert_eq!(out, [1, 2, 3, 3, UNKNOWN]);
        owners.fill((2, 5), &[0x1008], (0, 0), &mut out);
        assert_eq!(out[5], UNKNOWN);
        assert_eq!(owners.cells(1)[0], Value::from("page"));
        out.clear();
        Owners::default().fill((1, 5), &[1, 2], (0, 0), &mut out);
        assert_eq!(out, [UNKNOWN, UNKNOWN]);
    }
}
