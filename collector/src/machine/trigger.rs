//! The trigger of windows in `burst`: a number of loads of a thread, if the PMU counts them, else
//! an amount of its CPU time.
//!
//! Most results of the analysis concern samples by loads, so these are the default if the machine
//! has them. The recorder tests the PMU, since virtual machines have counters that never overflow.

use crate::machine::counters::CounterSearch;
use crate::machine::{counters, signal_cost};
use crate::watch::events;
use crate::watch::events::Counter;
use mgz_abi::shared_memory::CPU_TIME;
use mgz_annotations_schema::TriggerEvent;
use mgz_perf::attr::TYPE_SOFTWARE;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Default number of loads between triggers: about a hundred windows a second.
const LOADS: u64 = 10_000_000;
/// Default samples per second of CPU time in `watch`.
pub const RATE: f64 = 100.0;
/// Default percentage of the CPU time that recording may take.
pub const OVERHEAD: f64 = 1.0;
/// Nanoseconds that recording may take in the first half second, so that short runs have hundreds
/// of windows.
pub const LEAST_SPENT: u64 = 28_000_000;
/// Assumed cost of a window before any was recorded, nanoseconds, without its signals.
const WINDOW: u64 = 20_000;
/// The cost of triggers is negligible if they are at least this many nanoseconds apart. Source:
/// Chosen.
const SELDOM_TRIGGER_NS: u64 = 2_500_000;
/// A signal of the task clock that costs more nanoseconds is dear: bare metal takes 1,000 to 2,000.
/// Source: Chosen.
const MIN_DEAR_SIGNAL_NS: u64 = 8_000;
/// Upper bound of the loads that a thread executes in a nanosecond.
const LOADS_PER_NS: u64 = 16;

/// Cost that stands for an event clock that cannot be used, in nanoseconds.
const NEVER_NS: u64 = 1_000_000_000;

/// Trigger of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowTrigger {
    /// `type` of `struct perf_event_attr`.
    pub kind: u32,
    /// `config` of the same.
    pub config: u64,
    /// Events from one trigger of a thread to the next, on average: loads, or nanoseconds.
    pub period: u64,
    /// Nanoseconds of the kernel's tick if triggers are timers, which the kernel checks at the
    /// tick; 0 if they are perf events. With a budget: nonzero if such timers may be used.
    pub tick: u64,
    /// Bound on the cost of recording; `None` if triggers come at `period`.
    pub budget: Option<Budget>,
    /// Cost of recording.
    pub costs: Costs,
}

/// Bound on the cost of recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Millionths of the program's CPU time.
    pub share: u64,
    /// Nanoseconds that may be spent in the first half second.
    pub least: u64,
}

/// Costs of recording that are known before the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Cost of a signal of the event clock for a thread, nanoseconds.
    pub toll: u64,
    /// Cost of a window's signals, nanoseconds.
    pub signals: u64,
}

impl Costs {
    /// Expected cost of a window before any was recorded, nanoseconds, without its trigger.
    pub fn window(&self) -> u64 {
        WINDOW + self.signals
    }

    /// True if the event clock may begin windows at all.
    pub fn has_events(&self) -> bool {
        self.toll < NEVER_NS
    }
}

impl Budget {
    /// A budget of this percentage of the CPU time.
    pub fn new(percent: f64) -> Budget {
        Budget {
            share: ((percent * 1e4) as u64).max(1),
            least: LEAST_SPENT,
        }
    }

    /// Percent of the CPU time.
    pub fn percent(&self) -> f64 {
        self.share as f64 / 1e4
    }
}

impl WindowTrigger {
    fn of_event(kind: u32, config: u64, period: u64) -> WindowTrigger {
        WindowTrigger {
            kind,
            config,
            period,
            tick: 0,
            budget: None,
            costs: Costs::default(),
        }
    }

    /// A trigger by CPU time, `rate` times per second.
    pub fn time(rate: f64) -> WindowTrigger {
        WindowTrigger::of_event(CPU_TIME.0, CPU_TIME.1, (1e9 / rate) as u64)
    }

    /// A trigger by CPU time, as often as a budget allows. (The period is the interval of the
    /// recorder's checks.)
    pub fn within(budget: Budget) -> WindowTrigger {
        WindowTrigger {
            budget: Some(budget),
            ..WindowTrigger::time(1e9 / SELDOM_TRIGGER_NS as f64)
        }
    }

    fn loads(counter: &Counter, period: u64) -> WindowTrigger {
        WindowTrigger::of_event(counter.kind, counter.config, period)
    }

    /// True if loads are counted.
    pub fn by_loads(&self) -> bool {
        (self.kind, self.config) != CPU_TIME
    }

    /// Triggers per second of CPU time; 0 if they come by loads, or as a budget allows.
    pub fn rate(&self) -> f64 {
        if self.by_loads() || self.budget.is_some() {
            0.0
        } else {
            1e9 / self.period.max(1) as f64
        }
    }

    /// Minimum number of nanoseconds between triggers.
    pub fn least_ns(&self) -> u64 {
        if self.by_loads() {
            self.period / LOADS_PER_NS
        } else {
            self.period
        }
    }

    /// This trigger with a period of at least `toll`, the cost of a signal in nanoseconds: signals
    /// that come faster leave the program no time. If it differs from the request, a sentence for
    /// the user comes with it.
    pub fn bearable(self, toll: u64) -> (WindowTrigger, Option<String>) {
        if self.by_loads() || self.period >= toll {
            return (self, None);
        }
        let slower = WindowTrigger {
            period: toll,
            ..self
        };
        let why = format!(
            "{:.0} times a second instead of {:.0}, since a signal takes {:.0} us on this machine",
            slower.rate(),
            self.rate(),
            toll as f64 / 1e3
        );
        (slower, Some(why))
    }

    /// This trigger at the kernel's tick, if the tick allows the requested rate without being in
    /// step with it.
    pub fn at_ticks(self, tick: u64) -> Option<WindowTrigger> {
        (!self.by_loads() && tick > 0 && self.period >= 2 * tick)
            .then_some(WindowTrigger { tick, ..self })
    }

    /// The event and its description for the manifest, if triggers come by loads.
    pub fn source(&self) -> (TriggerEvent, String) {
        let event = match self.kind {
            TYPE_SOFTWARE => TriggerEvent::SoftwareLoads,
            _ => TriggerEvent::Loads,
        };
        let (kind, config) = (self.kind, self.config);
        let text = format!("loads (perf_event {kind}:{config:#x}, user space only)");
        (event, text)
    }
}

/// `--trigger`.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Retired loads, counted by the PMU; a window every --period loads
    Loads,
    /// CPU time in user space; --rate times a second
    CpuTime,
    /// CPU time, checked at the kernel's tick, which costs less on virtual machines; --rate times a
    /// second, at most every other tick
    Ticks,
}

/// The command line's options about triggers.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// `--trigger`.
    pub by: Option<By>,
    /// `--loads-event`.
    pub event: Option<Counter>,
    /// `--period`.
    pub period: Option<u64>,
    /// `--rate`.
    pub rate: Option<f64>,
    /// `--overhead`.
    pub overhead: Option<f64>,
}

/// `TYPE:CONFIG`.
pub fn parse_event(text: &str) -> Result<Counter, String> {
    let number = |t: &str| match t.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => t.parse().ok(),
    };
    let parts = text
        .split_once(':')
        .and_then(|(kind, config)| Some((number(kind)?, number(config)?)));
    match parts.and_then(|(kind, config)| {
        Some(Counter {
            kind: u32::try_from(kind).ok()?,
            config,
        })
    }) {
        Some(counter) if (counter.kind, counter.config) == CPU_TIME => {
            Err("this is CPU time; give --trigger cpu-time".into())
        }
        Some(counter) => Ok(counter),
        None => Err(format!(
            "{text:?} is not an event; give type and config of perf_event_attr, e.g. 4:0x81d0 (the type is in /sys/bus/event_source/devices/cpu/type)"
        )),
    }
}

/// Decides on the trigger, and gives the reason. The error is a sentence for the user.
pub fn choose_trigger(
    asked: &Asked,
    find: impl FnOnce() -> CounterSearch,
) -> Result<(WindowTrigger, String), String> {
    let loads = asked.by == Some(By::Loads) || asked.event.is_some();
    let time = matches!(asked.by, Some(By::CpuTime | By::Ticks))
        || asked.rate.is_some()
        || asked.overhead.is_some();
    match (asked.period, asked.rate) {
        _ if asked.overhead.is_some() && asked.rate.is_some() => {
            return Err("--rate fixes how often windows begin, and --overhead what they may cost: give one of them".into());
        }
        _ if asked.overhead.is_some() && loads => {
            return Err(
                "--overhead is for windows by CPU time; where loads begin windows, give --period"
                    .into(),
            );
        }
        (Some(_), Some(_)) => {
            return Err("--period counts loads and --rate CPU time: give one of them".into());
        }
        (None, Some(_)) if loads => {
            return Err("--rate is by CPU time; where loads begin windows, give --period".into());
        }
        (Some(_), None) if time => {
            return Err(
                "--period counts loads; where CPU time begins windows, give --rate or --overhead"
                    .into(),
            );
        }
        _ if asked.event.is_some() && time => {
            return Err("--loads-event is for windows by loads, not by CPU time".into());
        }
        _ => {}
    }
    let period = asked.period.unwrap_or(LOADS);
    if let Some(event) = &asked.event {
        return Ok((
            WindowTrigger::loads(event, period),
            format!(
                "loads are counted by event {}:{:#x}, as asked for",
                event.kind, event.config
            ),
        ));
    }
    let by_time = || match asked.rate {
        Some(rate) => WindowTrigger::time(rate),
        None => WindowTrigger::within(Budget::new(asked.overhead.unwrap_or(OVERHEAD))),
    };
    if time {
        return Ok((by_time(), "as asked for".into()));
    }
    let found = find();
    match found.counters {
        Some([counter, _]) => Ok((WindowTrigger::loads(&counter, period), found.why)),
        None if loads || asked.period.is_some() => Err(format!(
            "{}; let CPU time begin windows (--rate), or record with --mode ring, which counts records",
            found.why
        )),
        None => Ok((by_time(), found.why)),
    }
}

/// The chosen trigger for the windows of a recording.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The trigger.
    pub trigger: WindowTrigger,
    /// The reason, for the manifest.
    pub why: String,
    /// A sentence for the user if triggers come less often than requested.
    pub slower: Option<String>,
    /// Cost of one trigger for a thread, nanoseconds; 0 if unknown or negligible.
    pub toll: u64,
}

/// [`choose_trigger`] with trials on this machine, which take some milliseconds. `signal` is the one
/// that triggers send.
pub fn choose_here(asked: &Asked, signal: u32) -> Result<Chosen, String> {
    let (trigger, why) = choose_trigger(asked, find_load_event)?;
    if trigger.by_loads() {
        return Ok(Chosen {
            trigger,
            why,
            slower: None,
            toll: 0,
        });
    }
    choose_clock(
        trigger,
        why,
        asked.by == Some(By::Ticks),
        &Kernel::here(),
        || signal_cost::toll(signal as i32),
    )
}

/// Properties of the kernel's clocks.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    /// Nanoseconds from tick to tick; 0 if unknown.
    tick: u64,
    /// True if a system call ends first when a tick finds a timer over during the call (Linux 5.10
    /// on x86-64).
    calls_end_first: bool,
}

impl Kernel {
    fn here() -> Kernel {
        // SAFETY: zero is a valid value of both, which live across the calls.
        let (tick, release) = unsafe {
            let (mut coarse, mut names): (libc::timespec, libc::utsname) = std::mem::zeroed();
            // The coarse clocks advance at the tick.
            let known = libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut coarse) == 0
                && coarse.tv_sec == 0;
            libc::uname(&mut names);
            (
                if known { coarse.tv_nsec as u64 } else { 0 },
                std::ffi::CStr::from_ptr(names.release.as_ptr())
                    .to_string_lossy()
                    .into_owned(),
            )
        };
        Kernel {
            tick,
            calls_end_first: version(&release).is_some_and(|v| v >= (5, 10)),
        }
    }
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|n| n.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Chooses the clock that begins windows. perf's clock excludes the kernel and has any rate. Where
/// its signals are dear or refused, timers that the kernel checks at the tick replace it. `toll`
/// measures the cost of such a signal, if one comes.
fn choose_clock(
    trigger: WindowTrigger,
    why: String,
    ticks: bool,
    kernel: &Kernel,
    toll: impl FnOnce() -> Option<u64>,
) -> Result<Chosen, String> {
    let costs = Costs {
        toll: 0,
        signals: signal_cost::handled(),
    };
    let trigger = WindowTrigger { costs, ..trigger };
    if trigger.budget.is_some() {
        return within_budget(trigger, costs, why, ticks, kernel, toll());
    }
    let at_ticks = trigger.at_ticks(kernel.tick);
    if ticks {
        let trigger = at_ticks.ok_or_else(|| match kernel.tick {
            0 => "this kernel does not report its tick; give --trigger cpu-time".to_owned(),
            tick => format!("the kernel's tick comes {:.0} times a second, and windows can begin at every other one at most; ask for fewer (--rate), or give --trigger cpu-time", 1e9 / tick as f64),
        })?;
        return Ok(Chosen {
            trigger,
            why,
            slower: None,
            toll: 0,
        });
    }
    let toll = toll();
    let better = match toll {
        // Without perf's clock, only timers are left.
        None => Some("perf_event's clock is refused".to_owned()),
        Some(toll) => (toll > MIN_DEAR_SIGNAL_NS && kernel.calls_end_first).then(|| {
            format!(
                "a signal of perf_event's clock takes {:.0} us on this machine",
                toll as f64 / 1e3
            )
        }),
    };
    if let (Some(trigger), Some(since)) = (at_ticks, better) {
        return Ok(Chosen {
            trigger,
            why: format!("{why}; at the kernel's tick, since {since}"),
            slower: None,
            toll: 0,
        });
    }
    let toll = toll.unwrap_or(0);
    let costs = Costs { toll, ..costs };
    let (trigger, slower) = WindowTrigger { costs, ..trigger }.bearable(toll);
    let matters = trigger.period < SELDOM_TRIGGER_NS;
    Ok(Chosen {
        trigger,
        why,
        slower,
        toll: if matters { toll } else { 0 },
    })
}

/// The clock where windows come as a budget allows. They come often at first, by the event clock,
/// and later at ticks if these are cheaper.
fn within_budget(
    trigger: WindowTrigger,
    costs: Costs,
    why: String,
    ticks: bool,
    kernel: &Kernel,
    toll: Option<u64>,
) -> Result<Chosen, String> {
    if ticks && kernel.tick == 0 {
        return Err("this kernel does not report its tick; give --trigger cpu-time".to_owned());
    }
    let timers = ticks || toll.is_none();
    let dear = toll.is_some_and(|toll| toll > MIN_DEAR_SIGNAL_NS) && kernel.calls_end_first;
    let why = match toll {
        None => format!("{why}; at the kernel's tick, since perf_event's clock is refused"),
        Some(toll) if dear && !ticks => format!(
            "{why}; at the kernel's tick once the budget allows no more, since a signal of perf_event's clock takes {:.0} us on this machine",
            toll as f64 / 1e3
        ),
        Some(_) => why,
    };
    Ok(Chosen {
        trigger: WindowTrigger {
            tick: if timers || dear { kernel.tick } else { 0 },
            costs: Costs {
                toll: if timers { NEVER_NS } else { toll.unwrap_or(0) },
                ..costs
            },
            ..trigger
        },
        why,
        slower: None,
        toll: 0,
    })
}

/// The event that counts loads here and passes a trial.
pub fn find_load_event() -> CounterSearch {
    let mut tried = false;
    counters::here(&mut |counter| {
        // The second event counts stores and is not needed.
        if std::mem::replace(&mut tried, true) {
            Ok(())
        } else {
            judge(&trial(counter, TRIAL_PERIOD_LOADS)?)
        }
    })
}

/// Source: Chosen.
const TRIAL_LOADS: u64 = 2_000_000;
/// Loads between samples of the trial. Source: Chosen.
const TRIAL_PERIOD_LOADS: u64 = 50_000;

/// Result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Came {
    events: u64,
    samples: u64,
}

fn judge(came: &Came) -> io::Result<()> {
    let expected = came.events / TRIAL_PERIOD_LOADS;
    if came.events < TRIAL_LOADS || came.events > 8 * TRIAL_LOADS {
        return Err(io::Error::other(format!(
            "it counted {} of {TRIAL_LOADS} loads",
            came.events
        )));
    }
    if came.samples < expected / 2 || came.samples > 2 * expected {
        return Err(io::Error::other(format!(
            "it overflowed {} times instead of {expected}",
            came.samples
        )));
    }
    Ok(())
}

/// Counts an event of this thread while it loads, and the event's samples.
fn trial(counter: &Counter, period: u64) -> io::Result<Came> {
    let word = AtomicU64::new(0);
    let (events, samples) = events::try_out(counter, period, || {
        for _ in 0..TRIAL_LOADS {
            // The compiler may drop loads of a word that no other code can see.
            let word = std::hint::black_box(&word);
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    })?;
    Ok(Came { events, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTEL: Counter = Counter {
        kind: 4,
        config: 0x81d0,
    };

    fn there() -> CounterSearch {
        CounterSearch {
            counters: Some([
                INTEL,
                Counter {
                    kind: 4,
                    config: 0x82d0,
                },
            ]),
            why: "the PMU".into(),
        }
    }

    fn none() -> CounterSearch {
        CounterSearch {
            counters: None,
            why: "no PMU".into(),
        }
    }

    #[test]
    fn loads_are_preferred_and_never_pretended() {
        let by = |asked: &Asked, found: CounterSearch| {
            choose_trigger(asked, || found).map(|(trigger, _)| trigger)
        };
        let loads = |period| WindowTrigger::of_event(4, 0x81d0, period);
        let nothing = Asked::default();
        assert_eq!(by(&nothing, there()), Ok(loads(LOADS)));
        let budget = by(&nothing, none()).unwrap().budget.unwrap();
        assert_eq!((budget.percent(), budget.least), (OVERHEAD, LEAST_SPENT));
        let rate = Asked {
            rate: Some(1000.0),
            ..nothing.clone()
        };
        assert_eq!(
            by(&rate, there()),
            Ok(WindowTrigger::of_event(1, 1, 1_000_000))
        );
        let period = Asked {
            period: Some(500),
            ..nothing.clone()
        };
        assert_eq!(by(&period, there()), Ok(loads(500)));
        for asked in [
            period.clone(),
            Asked {
                by: Some(By::Loads),
                ..nothing.clone()
            },
        ] {
            let error = by(&asked, none()).unwrap_err();
            assert!(
                error.contains("no PMU") && error.contains("--rate"),
                "{error}"
            );
        }
        let own = Asked {
            event: Some(Counter { kind: 1, config: 2 }),
            ..period.clone()
        };
        assert_eq!(by(&own, none()), Ok(WindowTrigger::of_event(1, 2, 500)));
        for wrong in [
            Asked {
                rate: Some(1.0),
                ..period.clone()
            },
            Asked {
                by: Some(By::CpuTime),
                ..period.clone()
            },
            Asked {
                by: Some(By::Ticks),
                ..period
            },
            Asked {
                by: Some(By::Loads),
                ..rate.clone()
            },
            Asked {
                overhead: Some(1.0),
                ..rate.clone()
            },
            Asked {
                overhead: Some(1.0),
                ..own.clone()
            },
            Asked {
                by: Some(By::CpuTime),
                ..own
            },
        ] {
            assert!(by(&wrong, there()).is_err(), "{wrong:?}");
        }
        assert_eq!(
            (loads(LOADS).rate(), WindowTrigger::time(250.0).rate()),
            (0.0, 250.0)
        );
        assert!(loads(LOADS).by_loads() && !WindowTrigger::time(1.0).by_loads());
    }

    #[test]
    fn no_more_signals_than_a_thread_can_stand() {
        assert_eq!(
            WindowTrigger::time(1000.0).bearable(45_000),
            (WindowTrigger::time(1000.0), None)
        );
        assert_eq!(
            WindowTrigger::time(1000.0).bearable(0),
            (WindowTrigger::time(1000.0), None)
        );
        let few = WindowTrigger::of_event(4, 1, 10);
        assert_eq!(few.bearable(45_000), (few, None));
        let (slower, why) = WindowTrigger::time(50_000.0).bearable(40_000);
        assert_eq!(slower, WindowTrigger::time(25_000.0));
        assert!(why.is_some_and(|w| w.starts_with("25000 times a second instead of 50000")));
    }

    #[test]
    fn dear_clocks_give_way_to_the_tick() {
        const KERNEL: Kernel = Kernel {
            tick: 4_000_000,
            calls_end_first: true,
        };
        let clock = |rate, ticks, kernel: Kernel, toll| {
            choose_clock(
                WindowTrigger::time(rate),
                "why".into(),
                ticks,
                &kernel,
                || Some(toll),
            )
            .map(|c| (c.trigger.tick, c.trigger.period, c.toll))
        };
        assert_eq!(
            clock(100.0, false, KERNEL, 50_000),
            Ok((4_000_000, 10_000_000, 0))
        );
        assert_eq!(
            clock(125.0, false, KERNEL, 50_000),
            Ok((4_000_000, 8_000_000, 0))
        );
        // The signal is cheap, the rate is in step with the tick, the kernel ends system calls, or
        // the tick is unknown.
        assert_eq!(clock(100.0, false, KERNEL, 2_000), Ok((0, 10_000_000, 0)));
        assert_eq!(clock(200.0, false, KERNEL, 50_000), Ok((0, 5_000_000, 0)));
        assert_eq!(
            clock(1000.0, false, KERNEL, 50_000),
            Ok((0, 1_000_000, 50_000))
        );
        assert_eq!(
            clock(
                100.0,
                false,
                Kernel {
                    calls_end_first: false,
                    ..KERNEL
                },
                50_000
            ),
            Ok((0, 10_000_000, 0))
        );
        assert_eq!(
            clock(100.0, false, Kernel { tick: 0, ..KERNEL }, 50_000),
            Ok((0, 10_000_000, 0))
        );
        // The event clock is refused.
        let refused = |rate| {
            choose_clock(
                WindowTrigger::time(rate),
                "why".into(),
                false,
                &Kernel {
                    calls_end_first: false,
                    ..KERNEL
                },
                || None,
            )
            .map(|c| (c.trigger.tick, c.why))
        };
        assert_eq!(
            refused(100.0),
            Ok((
                4_000_000,
                "why; at the kernel's tick, since perf_event's clock is refused".to_owned()
            ))
        );
        assert_eq!(refused(1000.0), Ok((0, "why".to_owned())));
        // The user asked for ticks.
        assert_eq!(
            clock(
                100.0,
                true,
                Kernel {
                    calls_end_first: false,
                    ..KERNEL
                },
                0
            ),
            Ok((4_000_000, 10_000_000, 0))
        );
        assert!(
            clock(200.0, true, KERNEL, 0)
                .unwrap_err()
                .contains("250 times a second")
        );
        assert!(
            clock(100.0, true, Kernel { tick: 0, ..KERNEL }, 0)
                .unwrap_err()
                .contains("--trigger cpu-time")
        );
        let tick = Kernel::here().tick;
        assert!(
            tick == 0 || (100_000..=20_000_000).contains(&tick),
            "{tick} ns"
        );
    }

    #[test]
    fn a_budget_takes_the_clock_that_is_there() {
        let kernel = Kernel {
            tick: 4_000_000,
            calls_end_first: true,
        };
        let chosen = |ticks, kernel: Kernel, toll| {
            let budget = WindowTrigger::within(Budget::new(2.5));
            choose_clock(budget, "why".into(), ticks, &kernel, || toll).map(|c| {
                let budget = c.trigger.budget.unwrap();
                (c.trigger.tick, budget.share, c.trigger.costs.toll)
            })
        };
        let refused = chosen(false, kernel, None).unwrap();
        assert_eq!((refused.0, refused.1), (4_000_000, 25_000));
        assert!(refused.2 >= 1_000_000_000, "no event is ever wanted");
        assert_eq!(
            chosen(false, kernel, Some(45_000)),
            Ok((4_000_000, 25_000, 45_000))
        );
        assert_eq!(chosen(false, kernel, Some(2_000)), Ok((0, 25_000, 2_000)));
        assert!(chosen(true, kernel, Some(2_000)).unwrap().2 >= 1_000_000_000);
        let untold = Kernel { tick: 0, ..kernel };
        assert!(chosen(true, untold, Some(2_000)).is_err());
    }

    #[test]
    fn releases_of_kernels() {
        assert_eq!(version("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(version("5.10"), Some((5, 10)));
        assert_eq!(version("4.19.0-27-amd64"), Some((4, 19)));
        assert_eq!(version("next"), None);
    }

    #[test]
    fn events_are_type_and_config() {
        assert_eq!(parse_event("4:0x81d0"), Ok(INTEL));
        assert_eq!(parse_event("0x4:33232"), Ok(INTEL));
        for wrong in ["", "4", ":1", "4:", "x:1", "4294967296:1", "1:1"] {
            assert!(parse_event(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_counter_that_does_not_count_or_overflow_is_not_believed() {
        assert!(
            judge(&Came {
                events: TRIAL_LOADS + 5,
                samples: 40
            })
            .is_ok()
        );
        assert!(
            judge(&Came {
                events: 0,
                samples: 0
            })
            .unwrap_err()
            .to_string()
            .contains("counted 0")
        );
        assert!(
            judge(&Came {
                events: TRIAL_LOADS,
                samples: 0
            })
            .unwrap_err()
            .to_string()
            .contains("overflowed 0 times")
        );
        assert!(
            judge(&Came {
                events: TRIAL_LOADS,
                samples: 4000
            })
            .is_err()
        );
    }

    /// Nanoseconds are events that every machine can count.
    #[test]
    fn trials_count_events_and_samples() {
        let clock = Counter {
            kind: CPU_TIME.0,
            config: CPU_TIME.1,
        };
        let came = match trial(&clock, 100_000) {
            Ok(came) => came,
            Err(error) => return eprintln!("SKIPPED: perf_event_open is refused here ({error})"),
        };
        assert!(came.events > 200_000, "{came:?}");
        let expected = came.events / 100_000;
        assert!(
            came.samples >= 1 && came.samples <= 2 * expected + 2,
            "{came:?}"
        );
        // Page faults do not follow loads.
        assert!(judge(&trial(&Counter { kind: 1, config: 2 }, 1).unwrap()).is_err());
    }
}
