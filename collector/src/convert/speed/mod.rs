//! How fast the code of windows runs, which decides what a window of `burst` stands for.
//!
//! [`measure`] takes the runtime's measurements; [`balance`] adds what windows from one piece of
//! code to another tell.

pub(crate) mod balance;
pub(crate) mod measure;
