//! How much of a result is made.

/// How much of a result is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// All of it.
    #[default]
    All,
    /// What the [screen](crate::output::screen::screen) prints. Tables that it does not have are empty, cells that it does not have say nothing, and of the functions
    /// and lines so many that are worth a row have an estimate of their memory.
    Screen(usize),
}

impl Detail {
    /// Whether all is made.
    pub(crate) fn is_all(self) -> bool {
        self == Detail::All
    }
}
