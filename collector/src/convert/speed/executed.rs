//! Numbers of executed loads.

/// Loads that were executed in instrumented code, estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Executed {
    /// The estimate.
    pub loads: f64,
    /// Its 95 % interval, as far as it comes from the speeds, reaches from 1 / (1 + this) to (1 +
    /// this) times the estimate.
    pub error: f64,
}

/// Loads that were executed, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExecutedLoads {
    /// The estimate if the speed of all code was measured.
    pub known: Option<Executed>,
    /// The estimate if code without a measurement is taken to be like other code.
    pub assumed: Option<Executed>,
}
