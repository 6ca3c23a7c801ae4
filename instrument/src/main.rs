//! mgz.
fn main() {}
