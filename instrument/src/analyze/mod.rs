//! Load classes and register liveness by data flow.

pub mod class;
pub mod dataflow;
pub(crate) mod dead_flags;
pub mod demand;
pub mod imported_calls;
pub mod induction;
pub mod liveness;
pub(crate) mod params;
pub mod preserved;
pub mod reloads;
pub mod stack_frame;
pub(crate) mod straight_line;
pub mod unread_values;
pub mod value;
