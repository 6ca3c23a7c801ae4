//! Input data of findings.

use crate::data::call_paths::CallPaths;
use crate::data::code_map::CodeMap;
use crate::data::elements::Element;
use crate::data::group::Group;
use crate::data::object_map::Resolver;
use crate::data::samples::Waited;
use crate::estimate::time_shares::TimeShares;
use crate::findings::params;
use crate::findings::places::{Place, Places};
use crate::findings::prices::Prices;
use crate::findings::seen::{self, Seen};
use crate::findings::sites::{SiteFacts, facts};
use crate::findings::time_account::Paces;
use crate::findings::users::Users;
use crate::findings::waiting::WaitingShare;
use crate::findings::windows::{Row, Window};
use crate::input::weights::Weights;
use crate::misses::{Hierarchy, Predicted};
use crate::util::elided::elided;
use crate::util::fast_hash::Mixed;
use mgz_annotations_schema::sidecar::{CLASS_STRIDED, Origin};
use std::collections::HashMap;

/// Facts from windows, independent of the loads' costs.
pub struct Observed<'a> {
    places: Places,
    sites: HashMap<u32, SiteFacts, Mixed>,
    users: Users<'a>,
}

impl<'a> Observed<'a> {
    /// Collects the facts of some windows.
    pub fn new(code: &'a CodeMap, windows: &[Window], paths: Option<&CallPaths>) -> Observed<'a> {
        let ((places, sites), users) = rayon::join(
            || {
                let places = Places::new(windows);
                let sites = facts(windows, &places);
                (places, sites)
            },
            || Users::new(code, windows, paths),
        );
        Observed {
            places,
            sites,
            users,
        }
    }
}

/// Input data of findings.
pub struct Context<'a> {
    /// Names of code.
    pub code: &'a CodeMap,
    /// Objects, if the trace has them.
    pub objects: Option<&'a Resolver>,
    /// Call paths, if the trace has them.
    pub paths: Option<&'a CallPaths>,
    /// Rows of windows.
    pub windows: &'a [Window],
    /// Load instructions seen in windows.
    pub sites: HashMap<u32, SiteFacts, Mixed>,
    /// Misses of load instructions.
    pub prices: Prices<'a>,
    /// The user's code to which costs of other code are attributed.
    pub users: Users<'a>,
    /// Number of rows.
    pub rows: u64,
    /// Shares of the time, if windows were taken by time.
    pub(crate) times: Option<TimeShares>,
    /// Measured times per row.
    pub(crate) paces: Paces,
    waited: Waited,
    places: Places,
}

/// Measurements of the program's time by the recorder.
#[derive(Default)]
pub(crate) struct MeasuredTime<'a> {
    /// Shares of the time, if windows were taken by time.
    pub(crate) times: Option<TimeShares>,
    /// The time that windows represent.
    pub(crate) weights: Option<&'a Weights>,
    /// The load right before each window's trigger.
    pub(crate) waited: Waited,
}

impl<'a> Context<'a> {
    /// Prepares the data of some windows.
    pub(crate) fn new(
        code: &'a CodeMap,
        (objects, paths): (Option<&'a Resolver>, Option<&'a CallPaths>),
        (windows, observed): (&'a [Window], Observed<'a>),
        (hierarchy, predicted): (Hierarchy, Option<&'a Predicted>),
        measured: MeasuredTime,
    ) -> Context<'a> {
        let Observed {
            places,
            sites,
            users,
        } = observed;
        let known = measured.times.as_ref().zip(measured.weights);
        Context {
            paces: known.map_or_else(Paces::default, |(times, weights)| {
                Paces::new(times, weights, &users)
            }),
            times: measured.times,
            waited: measured.waited,
            rows: places.len() as u64,
            prices: Prices::new(hierarchy, predicted, &sites),
            sites,
            places,
            users,
            code,
            objects,
            paths,
            windows,
        }
    }

    /// This context with other misses.
    pub(crate) fn with_misses<'b>(self, predicted: &'b Predicted) -> Context<'b>
    where
        'a: 'b,
    {
        let hierarchy = predicted.hierarchy.clone();
        Context {
            prices: Prices::new(hierarchy, Some(predicted), &self.sites),
            ..self
        }
    }

    /// Measured waits of some load instructions.
    pub(crate) fn waiting(&self, sites: &[u32]) -> WaitingShare {
        WaitingShare::of_sites(sites, self.times.as_ref(), &self.waited)
    }

    /// The places of the rows of some load instructions, in order.
    pub fn places_of(&self, sites: &[u32]) -> Vec<Place> {
        let of_sites = sites.iter().flat_map(|&s| self.places.of(s));
        let mut places: Vec<Place> = of_sites.copied().collect();
        // The places of each instruction are sorted.
        places.sort();
        places
    }

    /// The places of the rows of a load instruction, in order.
    pub fn places_of_site(&self, site: u32) -> &[Place] {
        self.places.of(site)
    }

    /// The rows of a load instruction, each with the number of its window.
    pub fn rows_of(&self, site: u32) -> impl Iterator<Item = (u32, &'a Row)> {
        let row =
            |&(window, row): &Place| (window, &self.windows[window as usize].rows[row as usize]);
        self.places.of(site).iter().map(row)
    }

    /// Layout of an object's elements.
    pub fn element(&self, object: u32) -> &Element {
        const NO_ELEMENT: &Element = &Element {
            bytes: 0,
            fields: Vec::new(),
        };
        let object = self.objects.and_then(|o| o.objects.get(object as usize));
        object.map_or(NO_ELEMENT, |o| &o.element)
    }

    /// True if a load instruction has enough rows for a closer look.
    pub fn is_frequent(&self, facts: &SiteFacts) -> bool {
        facts.rows * params::ROWS_PER_FREQUENT_ROW >= self.rows
    }

    /// True if stores were recorded.
    pub fn knows_stores(&self) -> bool {
        self.code.has_stores() || self.windows.iter().any(|w| !w.stores.is_empty())
    }

    /// Memory that some load instructions accessed in windows.
    pub fn seen(&self, sites: &[u32]) -> Seen {
        seen::of(self.windows, &self.places_of(sites))
    }

    /// Groups of some load instructions.
    pub fn groups(&self, sites: &[u32]) -> Vec<Group> {
        let facts = sites.iter().filter_map(|s| self.sites.get(s));
        let mut groups: Vec<Group> = facts.map(|f| f.group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Origin of the address of a load.
    pub fn origin(&self, site: u32) -> (Origin, Option<u32>) {
        self.code.origin(site)
    }

    /// Origin of an address computed through loads of fields: follows pointers up to the load that
    /// determines the path.
    pub fn root(&self, site: u32) -> (Origin, Option<u32>) {
        let (_, origin, from) = self.root_load(site);
        (origin, from)
    }

    /// The load that determines the path, and its origin. See [`Context::root`].
    pub fn root_load(&self, site: u32) -> (u32, Origin, Option<u32>) {
        let of = |site: u32| {
            let (origin, from) = self.origin(site);
            (site, origin, from)
        };
        let mut at = of(site);
        for _ in 0..params::MAX_POINTERS_TO_ORIGIN {
            let (_, Origin::Pointer, Some(from)) = at else {
                return at;
            };
            match of(from) {
                next @ (_, Origin::Pointer | Origin::Chain | Origin::Tree | Origin::Search, _) => {
                    at = next;
                }
                next @ (_, Origin::Hash, _) => return next,
                _ => return at,
            }
        }
        at
    }

    /// True if static analysis classified a load as Strided, or if windows show that it is.
    pub fn walks(&self, site: u32) -> bool {
        self.code.site_class(site) == Some(CLASS_STRIDED)
            || self
                .sites
                .get(&site)
                .is_some_and(|s| s.is_in_order() && s.has_steps_for_pattern())
    }

    /// True if the name of a site's code, or of a function that it was inlined into, contains one
    /// of `names` at the begin of a word.
    pub fn is_named(&self, facts: &SiteFacts, names: &[&str]) -> bool {
        self.is_called(facts, |text| {
            let head = text.split(['<', '(']).next().unwrap_or(text);
            has_word(head, names)
        })
    }

    /// True if the last part of such a name, without template arguments and parameters, is one of
    /// `names`.
    pub fn is_function(&self, facts: &SiteFacts, names: &[&str]) -> bool {
        self.is_called(facts, |text| {
            let name = elided(text);
            let last = name.rsplit("::").next().unwrap_or(&name);
            names.contains(&last)
        })
    }

    /// True if such a name contains one of `names` at any position, for example in a type
    /// parameter.
    pub fn is_made_with(&self, facts: &SiteFacts, names: &[&str]) -> bool {
        self.is_called(facts, |text| names.iter().any(|name| text.contains(name)))
    }

    /// True if some name of a site's code satisfies the predicate.
    fn is_called(&self, facts: &SiteFacts, is_sought: impl Fn(&str) -> bool) -> bool {
        self.code.names(facts.group.piece()).any(is_sought)
    }
}

/// True if a path contains one of `names` at the begin of a word: `btree` is in
/// `alloc::btree_map`, not in `sum_subtree`.
fn has_word(path: &str, names: &[&str]) -> bool {
    let mut before = None;
    path.char_indices().any(|(at, char)| {
        let is_begin = !before.replace(char).is_some_and(char::is_alphanumeric);
        is_begin && names.iter().any(|name| path[at..].starts_with(name))
    })
}

#[cfg(test)]
mod tests {
    use super::has_word;

    #[test]
    fn names_begin_words() {
        assert!(has_word(
            "alloc::collections::btree::map::insert",
            &["btree"]
        ));
        assert!(has_word("std::__lower_bound", &["lower_bound"]));
        assert!(has_word("std::_Rb_tree_increment", &["_Rb_tree"]));
        assert!(has_word("std::map", &["std::map"]));
        assert!(!has_word("sum_subtree", &["btree"]));
        assert!(!has_word("", &["btree"]));
    }
}
