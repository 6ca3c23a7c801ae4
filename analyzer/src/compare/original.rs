//! Program files that traces were recorded from.

use serde::Deserialize;
use std::path::Path;

/// A program file that a trace was recorded from.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub struct Original {
    /// Path.
    pub path: String,
    /// GNU build id, hex; empty if there is none.
    pub build_id: String,
    /// XXH3 of its bytes, hex.
    pub hash: String,
}

impl Original {
    /// True if this is the same build as `one`, and a different build from `other`: a fixed file
    /// may keep the build id.
    pub(super) fn is(&self, one: &Original, other: &Original) -> bool {
        let is_build = |of: &Original| !of.build_id.is_empty() && of.build_id == self.build_id;
        let is_file = |of: &Original| !of.hash.is_empty() && of.hash == self.hash;
        is_file(one) || is_build(one) && !is_build(other) && !is_file(other)
    }

    pub(super) fn name(&self) -> Option<&std::ffi::OsStr> {
        Path::new(&self.path).file_name()
    }
}
