//! Shared objects that place heap blocks of chosen allocation sites.
//!
//! [`shared_object`] returns the bytes of a library with an embedded [`Plan`]. A program gets it as
//! its first `DT_NEEDED` entry or by `LD_PRELOAD`. `docs/design/fix-library.md` explains the
//! library.

mod encode;
mod plan;

pub use encode::shared_object;
pub use mgz_fix_runtime::plan_format::FRAMES as MAX_FRAMES;
pub use plan::{ANY_MODULE, Action, EXECUTABLE, Frame, Plan, SitePolicy};

/// The reason why no library can be made from a plan.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A site has no frames or too many.
    #[error("a site has {0} frames, not 1 to {max}", max = mgz_fix_runtime::plan_format::FRAMES)]
    Frames(usize),
    /// A site that represents all has further frames.
    #[error("a site of all modules has one frame with offset 0, and a plan has at most one")]
    AnySite,
    /// Two policies for one site.
    #[error("two policies are for one site: {0}")]
    Twice(String),
    /// Padding that the library does not support.
    #[error(
        "padding to {align} bytes with offset {offset} is not possible: the alignment is a power of two from 64 to 65536, the offset a multiple of 64"
    )]
    Pad {
        /// The alignment.
        align: u32,
        /// The offset.
        offset: u32,
    },
    /// More sites, modules or pools than a library holds.
    #[error("the plan is too large: {0}")]
    Large(&'static str),
    /// The build's image is not as expected.
    #[error("the library's image has no room for a plan")]
    Image,
}
