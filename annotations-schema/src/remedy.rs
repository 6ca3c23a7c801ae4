//! Remedies as the user names them.

use std::fmt;

/// A remedy in the notation of `mgz what-if`: `KIND of TARGET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedRemedy<'a> {
    /// Name of the kind, such as `prefetch`.
    pub kind: &'a str,
    /// An object, or code, with the number that some kinds take behind it.
    pub target: &'a str,
}

impl<'a> NamedRemedy<'a> {
    /// Reads a remedy. `None` if it names no target.
    pub fn read(text: &'a str) -> Option<NamedRemedy<'a>> {
        let (kind, target) = text.trim().split_once(" of ")?;
        Some(NamedRemedy {
            kind: kind.trim(),
            target: target.trim(),
        })
    }

    /// True if the text names a remedy of this kind.
    pub fn is_of_kind(text: &str, kind: &str) -> bool {
        NamedRemedy::read(text).is_some_and(|remedy| remedy.kind == kind)
    }
}

impl fmt::Display for NamedRemedy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.kind, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_ends_the_kind() {
        let text = "split of list of nodes by 4";
        let remedy = NamedRemedy::read(text).unwrap();
        assert_eq!(
            (remedy.kind, remedy.target),
            ("split", "list of nodes by 4")
        );
        assert_eq!(remedy.to_string(), text);
        assert_eq!(NamedRemedy::read("split"), None);
        assert!(NamedRemedy::is_of_kind(text, "split"));
        assert!(!NamedRemedy::is_of_kind(text, "split of list"));
    }
}
