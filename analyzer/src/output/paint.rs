//! Colors of a terminal.

/// Paints text, or leaves it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paint {
    is_on: bool,
}

impl Paint {
    /// Colors for a terminal, unless its user disables them (`NO_COLOR`) or it has none.
    pub fn of(is_terminal: bool) -> Paint {
        let wants_none = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let has_none = std::env::var_os("TERM").is_none_or(|v| v.is_empty() || v == "dumb");
        Paint {
            is_on: is_terminal && !wants_none && !has_none,
        }
    }

    fn painted(self, code: &str, text: &str) -> String {
        match self.is_on && !text.is_empty() {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.painted("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.painted("2", text)
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.painted("32", text)
    }

    /// A cost: red if much, else yellow.
    pub(crate) fn cost(self, text: &str, is_much: bool) -> String {
        self.painted(if is_much { "1;31" } else { "1;33" }, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_colors_stays() {
        assert_eq!(Paint::default().bold("a"), "a");
        assert_eq!(Paint { is_on: true }.good("a"), "\u{1b}[32ma\u{1b}[0m");
        assert_eq!(Paint { is_on: true }.dim(""), "");
        assert_eq!(Paint::of(false), Paint::default());
    }
}
