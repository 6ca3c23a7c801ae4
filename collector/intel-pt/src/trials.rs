//! Trials of `perf_event_open`: the events that recording would use, opened one at a time.

use crate::pt::plan::{Keep, Machine, Request, Role, Timing, Trigger, plan};
use mgz_collector::machine::pt_facts::Trials;
use mgz_perf::attr::{Attr, TYPE_SOFTWARE, action, flag};
use mgz_perf::kernel::Kernel as Events;

/// Opens and closes the events that recording would use. They count nothing.
pub fn trials(kernel: &mut dyn Events) -> Trials {
    let Ok(machine) = Machine::read(kernel) else {
        return Trials::default();
    };
    let Some(&cpu) = machine.cpus.first() else {
        return Trials::default();
    };
    let mut trying = Trying {
        kernel,
        machine,
        cpu,
        trials: Trials::default(),
    };
    trying.samplers();
    trying.trace();
    trying.trials
}

/// State of the trials.
struct Trying<'k> {
    kernel: &'k mut dyn Events,
    machine: Machine,
    /// The CPU on which events are opened by default.
    cpu: u32,
    trials: Trials,
}

impl Trying<'_> {
    /// Opens one event and closes it. The result is the error, or an empty text.
    fn open(&mut self, attr: &Attr, cpu: u32) -> String {
        let attr = Attr {
            flags: attr.flags | flag::DISABLED,
            ..*attr
        };
        let mut opened = self.kernel.open(&attr, 0, cpu as i32, None);
        // As in recording.
        if opened
            .as_ref()
            .is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL))
        {
            let with_guests = Attr {
                flags: attr.flags & !flag::EXCLUDE_GUEST,
                ..attr
            };
            opened = self.kernel.open(&with_guests, 0, cpu as i32, None);
        }
        let text = opened.err().map_or(String::new(), |e| e.to_string());
        self.kernel.close_all();
        text
    }

    /// Tries the events that take samples: the loads of each core PMU, and the clock.
    fn samplers(&mut self) {
        let alone = Machine {
            pt: None,
            ..self.machine.clone()
        };
        let events = |trigger| {
            plan(&alone, &request(trigger, false))
                .map(|p| p.events)
                .unwrap_or_default()
        };
        for event in events(LOADS) {
            if event.role != Role::Sample {
                continue;
            }
            let cpu = event.cpus.first().copied().unwrap_or(self.cpu);
            let text = self.open(&event.attr, cpu);
            if event.attr.kind == TYPE_SOFTWARE {
                self.trials.clock = Some(text);
                continue;
            }
            let mut cores = self.machine.cores.iter();
            let name = cores
                .find(|c| c.kind == event.attr.kind)
                .map_or_else(String::new, |c| c.name.clone());
            self.trials.loads.insert(name, text);
        }
        if self.trials.clock.is_none() {
            let events = events(Trigger::Clock(1_000_003));
            let cpu = self.cpu;
            self.trials.clock = events.first().map(|event| self.open(&event.attr, cpu));
        }
    }

    /// Tries the PT event, without pauses and with them.
    fn trace(&mut self) {
        for pause in [false, true] {
            let Ok(made) = plan(&self.machine, &request(LOADS, pause)) else {
                continue;
            };
            let Some(event) = made.events.iter().find(|e| e.role == Role::Trace) else {
                continue;
            };
            // Kernels without actions refuse any action.
            let attr = Attr {
                aux_action: if pause { action::START_PAUSED } else { 0 },
                ..event.attr
            };
            let text = self.open(&attr, self.cpu);
            *(if pause {
                &mut self.trials.pause
            } else {
                &mut self.trials.pt
            }) = Some(text);
        }
    }
}

const LOADS: Trigger = Trigger::Loads(1_000_000);

/// A request for windows.
fn request(trigger: Trigger, pause: bool) -> Request {
    Request {
        keep: Keep::Windows {
            bytes: 4096,
            trigger,
            pause,
        },
        timing: Timing::default(),
        filter: String::new(),
        guests: false,
        stacks: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_open_what_recording_opens_and_close_it() {
        let mut fake = mgz_perf::kernel_fake::Fake::new(mgz_perf::kernel_fake::machine(
            "0-1",
            &[("cpu_core", 4, "0"), ("cpu_atom", 10, "1")],
        ));
        fake.refuse = Box::new(|attr, cpu| {
            assert!(attr.flags & flag::DISABLED != 0 && (attr.kind != 10 || cpu == 1));
            (attr.aux_action != 0).then_some(libc::EINVAL)
        });
        let found = trials(&mut fake);
        assert_eq!(
            (found.clock.as_deref(), found.pt.as_deref()),
            (Some(""), Some(""))
        );
        assert!(found.pause.is_some_and(|e| e.contains("Invalid argument")));
        assert_eq!(
            found.loads,
            [
                ("cpu_atom".to_string(), String::new()),
                ("cpu_core".into(), String::new())
            ]
            .into()
        );
        assert!(fake.events.is_empty() && fake.closed >= 5);
    }
}
