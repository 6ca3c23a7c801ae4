//! Extent of a result.

/// Extent of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// All of it.
    #[default]
    All,
    /// Only the contents of the [screen](crate::output::screen::screen). Its missing tables are
    /// empty and its missing cells are unknown. This many functions and lines have an estimate of
    /// their memory.
    Screen(usize),
}

impl Detail {
    /// True if everything is computed.
    pub(crate) fn is_all(self) -> bool {
        self == Detail::All
    }
}
