//! Speed of the code of windows, which decides the number of loads that a window of `burst` stands
//! for.
//!
//! [`measure`] takes the runtime's measurements; [`balance`] adds the information in windows from
//! one piece of code to another.

pub(crate) mod balance;
pub(crate) mod executed;
pub(crate) mod measure;
mod params;
