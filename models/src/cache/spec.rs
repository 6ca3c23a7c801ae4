//! Description of a level of a hierarchy: shape, policy, inclusion and prefetchers.

use crate::cache::policy::Policy;
use crate::cache::prefetch::Prefetch;
use crate::cache::shape::Shape;
use serde::{Deserialize, Serialize};

/// Relation of a level's lines to those of the levels before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inclusion {
    /// A miss also fills this level. A line that it evicts stays in the levels before it.
    #[default]
    NonInclusive,
    /// A miss also fills this level. A line that it evicts is invalidated in the levels before it.
    Inclusive,
    /// It is filled by lines that the level before it evicts. A line that hits in it moves to that
    /// level.
    Exclusive,
}

impl Inclusion {
    /// Every kind, with its name.
    pub const ALL: [(Inclusion, &'static str); 3] = [
        (Inclusion::NonInclusive, "non-inclusive"),
        (Inclusion::Inclusive, "inclusive"),
        (Inclusion::Exclusive, "exclusive"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Inclusion::ALL
            .iter()
            .find(|i| i.0 == self)
            .map_or("", |i| i.1)
    }
}

/// Description of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelSpec {
    /// Size, ways and line.
    pub shape: Shape,
    /// Choice of the line to evict.
    pub policy: Policy,
    /// Relation to the lines of the levels before it.
    pub inclusion: Inclusion,
    /// Its prefetchers.
    pub prefetch: Prefetch,
}

impl From<Shape> for LevelSpec {
    fn from(shape: Shape) -> LevelSpec {
        LevelSpec {
            shape,
            policy: Policy::default(),
            inclusion: Inclusion::default(),
            prefetch: Prefetch::default(),
        }
    }
}

/// Shortest line for which hierarchies are simulated.
pub const SHORTEST_LINE: u64 = 8;

impl LevelSpec {
    /// Refuses an invalid level, with a sentence.
    pub fn check(&self) -> Result<(), String> {
        let Shape { ways, line, .. } = self.shape;
        if line < SHORTEST_LINE {
            return Err(format!(
                "lines of {line} bytes are too short to be simulated; they have at least {SHORTEST_LINE}"
            ));
        }
        check_ways(self.policy, ways)
    }
}

/// Refuses numbers of ways that a policy does not support, with a sentence.
pub fn check_ways(policy: Policy, ways: u64) -> Result<(), String> {
    if policy == Policy::Plru && (!ways.is_power_of_two() || ways > 64) {
        return Err(format!(
            "plru is a binary tree over the ways: their number must be a power of two up to 64, not {ways}"
        ));
    }
    Ok(())
}

/// Refuses incompatible levels, with a sentence.
pub fn check_levels(levels: &[LevelSpec]) -> Result<(), String> {
    if levels.is_empty() {
        return Err("a hierarchy has at least one level".into());
    }
    for level in levels {
        level.check()?;
    }
    if levels[0].inclusion != Inclusion::NonInclusive {
        return Err(format!(
            "the first level cannot be {}: no level is in front of it",
            levels[0].inclusion.name()
        ));
    }
    for pair in levels.windows(2) {
        let (front, behind) = (pair[0].shape.line, pair[1].shape.line);
        if behind < front {
            return Err(format!(
                "lines of {behind} bytes cannot lie behind lines of {front} bytes; they stay as long or become longer"
            ));
        }
        if pair[1].inclusion == Inclusion::Exclusive && behind != front {
            return Err(format!(
                "an exclusive level takes over whole lines: it has lines of {front} bytes as the level in front, not {behind}"
            ));
        }
    }
    Ok(())
}
