//! Intel PT: live recording, and traces of perf.data files. `mgz-record` can be built without it.
//!
//! * [`pt`]: recording into a perf.data file.
//! * [`import`]: perf.data files to traces.
//! * [`settings`]: the settings of `--pt` as a request.
//! * [`trials`]: events that the kernel allows on this machine.
//! * [`commands`]: the commands of `mgz-record` that use them.

pub mod commands;
pub mod import;
pub mod pt;
pub mod settings;
pub mod trials;

use mgz_collector::commands::intel_pt::IntelPt;
use mgz_collector::machine::pt_facts::PtFacts;
use mgz_perf::kernel_linux::Linux;
use pt::known::Known;

/// The functions that the recorder calls.
pub const INTEL_PT: IntelPt = IntelPt {
    facts,
    record: commands::record::record_with_pt,
    import: commands::import::import,
};

/// Facts about Intel PT on this machine.
pub fn facts() -> PtFacts {
    let erratum = Known::read(|path| std::fs::read_to_string(path)).erratum();
    PtFacts {
        trials: trials::trials(&mut Linux::default()),
        erratum: erratum.map_or(Vec::new(), |(what, remedy)| vec![what, remedy.into()]),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_clock_is_tried_everywhere() {
        assert!(super::facts().trials.clock.is_some());
    }
}
