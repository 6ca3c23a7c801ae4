//! mgz.
