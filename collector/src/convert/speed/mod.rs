//! TODO: crate::convert::speed

pub(crate) mod balance;
pub(crate) mod measure;
