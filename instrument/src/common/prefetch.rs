//! Loads that are to be prefetched, and the outcome for each of them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// Form of a prefetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The first form that suits the code.
    #[default]
    Auto,
    /// The load's own address, some iterations ahead.
    Strided,
    /// An address that is computed from an element of an array some iterations ahead, or from the
    /// loop's counter.
    Gather,
    /// The loaded field in the list's next node.
    List,
}

/// Request for one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The form to try first.
    pub kind: Kind,
    /// Iterations ahead, 1 at least.
    pub distance: u32,
}

/// The loads to be prefetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// These, by link-time address.
    Loads(BTreeMap<u64, Wanted>),
    /// Every load for which a strided or gather prefetch can be placed, this far ahead.
    All {
        /// Iterations.
        distance: u32,
    },
}

impl Request {
    /// True if a function at these addresses may hold a load of the request.
    pub fn concerns(&self, range: &Range<u64>) -> bool {
        match self {
            Request::Loads(loads) => loads.range(range.clone()).next().is_some(),
            Request::All { .. } => true,
        }
    }
}

/// A prefetch that is in the new file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Form.
    pub kind: Kind,
    /// Iterations ahead.
    pub distance: u32,
}

/// Outcome for one load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Link-time address of the load.
    pub address: u64,
    /// The prefetch, or why there is none.
    pub result: Result<Placed, String>,
}
