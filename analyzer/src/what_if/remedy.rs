//! The trait of remedies, and their names on the command line.

use crate::findings::gains::Costs;
use crate::findings::spared::{ALL_LEFT, Spared};
use crate::misses::Range;
use crate::what_if::memory::NewMemory;
use crate::what_if::remedies::KINDS;
use mgz_annotations_schema::NamedRemedy;
use mgz_models::util::size::size;

/// A load while remedies move it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Address.
    pub(crate) address: u64,
    /// Number of the load instruction in the whole trace.
    pub(crate) site: u32,
    /// Data object; 0 if unknown.
    pub(crate) object: u32,
    /// First address of the block or variable.
    pub(crate) start: u64,
    /// Bytes of the block or variable; 0 if unknown.
    pub(crate) bytes: u64,
}

impl Load {
    /// Bytes from the begin of the block.
    pub(crate) fn offset(&self) -> u64 {
        self.address.wrapping_sub(self.start)
    }
}

/// A transformation of the addresses of a program.
pub(crate) trait Remedy: Send + Sync {
    /// Moves consecutive loads of one sample. Samples come in the order of the trace, and may be
    /// repeated.
    fn apply(&self, process: u32, loads: &mut [Load], memory: &NewMemory);

    /// True if the remedy changes addresses.
    fn moves(&self) -> bool {
        true
    }

    /// True if the remedy changes page sizes, even if addresses stay the same.
    fn changes_pages(&self) -> bool {
        false
    }

    /// True if the memory of an object gets huge pages.
    fn has_huge_pages(&self, _object: u32) -> bool {
        false
    }

    /// True if prefetches hide the waits of a load instruction.
    fn prefetches(&self, _site: u32) -> bool {
        false
    }

    /// True if the loads of an instruction are sorted, even beyond windows.
    fn sorts(&self, _site: u32) -> bool {
        false
    }

    /// The part of a load instruction's waits that is left: least, estimate, most.
    fn left(&self, _site: u32) -> Range {
        ALL_LEFT
    }

    /// Time of regions that is saved beside the waits of loads.
    fn spared(&self) -> &[Spared] {
        &[]
    }

    /// Assumptions, and effects that the prediction ignores, one sentence each.
    fn limits(&self) -> Vec<String>;
}

/// Kind of target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A data object by its name.
    Object,
    /// Code: `FILE:LINE` or a function.
    Code,
}

/// A kind of remedy.
pub(crate) struct Kind {
    /// Name on the command line.
    pub(crate) name: &'static str,
    /// Its targets.
    pub(crate) target: Target,
    /// Meaning of the number after `by`; empty if there is none.
    pub(crate) by: &'static str,
    /// Builds the remedy for a target. An error is a sentence for the user.
    pub(crate) make: fn(&Costs, &Spec) -> Result<Box<dyn Remedy>, String>,
}

impl Kind {
    /// For example `split of OBJECT`.
    pub(crate) fn usage(&self) -> String {
        let target = match self.target {
            Target::Object => "OBJECT",
            Target::Code => "CODE",
        };
        format!("{} of {target}", self.name)
    }
}

/// A remedy as named on the command line: `KIND of TARGET by N`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    /// Name of the kind.
    pub(crate) kind: String,
    /// Name of the target.
    pub(crate) target: String,
    /// The number after `by`.
    pub(crate) by: Option<u64>,
}

impl Spec {
    /// Parses the words of a remedy. An error is a sentence for the user.
    pub(crate) fn parse(text: &str) -> Result<Spec, String> {
        let named = NamedRemedy::read(text).ok_or_else(|| {
            format!(
                "{text:?} names no target; write KIND of TARGET, for example 'split of particles'"
            )
        })?;
        let by = named.target.rsplit_once(" by ");
        let by = by.and_then(|(target, number)| Some((target, size(number).ok()?)));
        let (target, by) = match by {
            Some((target, number)) => (target, Some(number)),
            None => (named.target, None),
        };
        let spec = Spec {
            kind: named.kind.to_owned(),
            target: target.trim().to_owned(),
            by,
        };
        let known = spec.kind()?;
        if by.is_some() && known.by.is_empty() {
            return Err(format!("{text:?}: {} takes no number", known.name));
        }
        Ok(spec)
    }

    /// The kind with this name.
    pub(crate) fn kind(&self) -> Result<&'static Kind, String> {
        let known = KINDS.iter().copied().find(|k| k.name == self.kind);
        known.ok_or_else(|| {
            let names: Vec<String> = KINDS.iter().map(|k| k.usage()).collect();
            format!(
                "{:?} is no kind of remedy; there are {}",
                self.kind,
                names.join(", ")
            )
        })
    }

    /// The remedy in the form that [`Spec::parse`] reads.
    pub(crate) fn text(&self) -> String {
        let by = self.by.map_or_else(String::new, |n| format!(" by {n}"));
        format!("{} of {}{by}", self.kind, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_are_named_by_kind_target_and_number() {
        let spec = Spec::parse("transpose of grid (double[8][8]) by 32K").unwrap();
        assert_eq!(spec.target, "grid (double[8][8])");
        assert_eq!(spec.by, Some(32 << 10));
        assert_eq!(Spec::parse(&spec.text()), Ok(spec));
        // The name of an object may contain the words `of` and `by`.
        let spec = Spec::parse("split of list of nodes by hand").unwrap();
        assert_eq!(
            (spec.target.as_str(), spec.by),
            ("list of nodes by hand", None)
        );
    }

    #[test]
    fn unknown_remedies_are_refused_with_a_reason() {
        let error = |text: &str| Spec::parse(text).unwrap_err();
        assert!(error("split").contains("names no target"));
        assert!(error("frobnicate of x").contains("there are"));
        assert!(error("split of x by 4").contains("no number"));
    }
}
