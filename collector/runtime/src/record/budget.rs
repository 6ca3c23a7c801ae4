//! Rate at which windows begin if recording has a budget: a share of the program's CPU time, with a
//! larger share at the start.
//!
//! The budget of the first half second is spent evenly over it, for any share of the CPU time,
//! so a run of half a second has as many windows as the first half second of a long run. After
//! that, windows are paid from half of the share until the full share covers all spending so far;
//! from then on the full share applies. So no phase is without windows, and a long run costs no
//! more than its share.
//!
//! All processes of a recording use one account in the shared memory ([`Header::spent`]).

use crate::record::params::{
    EXHAUSTED_SHARE_LOG2, GUARANTEED_TIME_NS, MAX_ADDED_NS_PER_RECORD, MAX_COPY_NS,
    MAX_WINDOW_DISTANCE_NS, MIN_TIME_OF_CORRECTION_NS, MIN_WINDOW_DISTANCE_NS,
    SIGNAL_COST_AT_TICK_NS, TIME_SHARE_OF_CORRECTION, WINDOW_COST_WEIGHT_LOG2,
};
use core::sync::atomic::Ordering;
use mgz_abi::shared_memory::Header;

/// State of the budget account.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// Millionths of the CPU time that may be spent.
    pub share: u64,
    /// Nanoseconds that may be spent in the first half second.
    pub least: u64,
    /// CPU time of the program so far, nanoseconds.
    pub cpu: u64,
    /// Nanoseconds of that time that recording took.
    pub spent: u64,
    /// Cost of a window without its trigger, nanoseconds.
    pub window: u64,
    /// Cost of a trigger by the event clock, nanoseconds.
    pub toll: u64,
    /// Nanoseconds from tick to tick, if timers may begin windows; else 0.
    pub tick: u64,
}

/// Source and period of the next windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPlan {
    /// Average distance between windows, nanoseconds of a thread's CPU time.
    pub period: u64,
    /// True if timers begin the windows, which the kernel checks at its ticks; false if the event
    /// clock does.
    pub at_ticks: bool,
}

/// Reads the account; `None` where triggers come at a fixed period.
pub fn account(header: &Header) -> Option<Account> {
    (header.budget_share != 0).then(|| Account {
        share: header.budget_share,
        least: header.budget_least,
        cpu: header.cpu.load(Ordering::Relaxed),
        spent: header.spent.load(Ordering::Relaxed),
        window: header.window_ns.load(Ordering::Relaxed),
        toll: header.trigger_toll,
        tick: header.trigger_tick,
    })
}

/// The budget's share of `ns` nanoseconds of CPU time.
fn share(account: &Account, ns: u64) -> u64 {
    (u128::from(ns) * u128::from(account.share) / 1_000_000) as u64
}

/// Time that recording may have spent by the time the program has used `cpu` nanoseconds.
fn allowed(account: &Account, cpu: u64) -> u64 {
    let first = u128::from(account.least) * u128::from(cpu.min(GUARANTEED_TIME_NS))
        / u128::from(GUARANTEED_TIME_NS);
    let later = share(account, cpu.saturating_sub(GUARANTEED_TIME_NS)) / 2;
    (first as u64)
        .saturating_add(later)
        .max(share(account, cpu))
}

/// Decides how often windows begin from now on.
pub fn plan_windows(account: &Account) -> WindowPlan {
    let ahead = (account.cpu / TIME_SHARE_OF_CORRECTION).max(MIN_TIME_OF_CORRECTION_NS);
    let allowed = allowed(account, account.cpu.saturating_add(ahead))
        .saturating_sub(account.spent)
        .max(share(account, ahead) >> EXHAUSTED_SHARE_LOG2)
        .max(1);
    let each = |cost: u64| {
        let period = u128::from(ahead) * u128::from(cost) / u128::from(allowed);
        period.clamp(MIN_WINDOW_DISTANCE_NS.into(), MAX_WINDOW_DISTANCE_NS.into()) as u64
    };
    let by_event = each(account.window.saturating_add(account.toll));
    // If ticks bring nearly as many windows, they are the cheaper source.
    if account.tick != 0 && by_event >= account.tick.saturating_add(account.tick / 4) {
        return WindowPlan {
            period: each(account.window.saturating_add(SIGNAL_COST_AT_TICK_NS))
                .max(account.tick.saturating_mul(2)),
            at_ticks: true,
        };
    }
    WindowPlan {
        period: by_event,
        at_ticks: false,
    }
}

/// Adds `ns` nanoseconds of a thread's CPU time to the account.
pub fn ran(header: &Header, ns: u64) {
    header.cpu.fetch_add(ns, Ordering::Relaxed);
}

/// Adds `ns` nanoseconds of recording to the account.
pub fn spend(header: &Header, ns: u64) {
    header.spent.fetch_add(ns, Ordering::Relaxed);
}

/// Upper bound on the time that recording adds to `slots` that took `ns` nanoseconds. The program
/// itself takes the rest, waiting for memory or for the processor.
pub fn added(ns: u64, slots: u64) -> u64 {
    ns.min(MAX_ADDED_NS_PER_RECORD * slots)
}

/// Charges a window of `slots` to the account and updates the learned cost of windows. The window
/// took `ns` nanoseconds without handlers, and the copy of its stack `copy` nanoseconds.
pub fn window(header: &Header, ns: u64, slots: u64, copy: u64) {
    let cost = added(ns, slots) + header.signal_ns + copy.min(MAX_COPY_NS);
    spend(header, cost);
    // A concurrent update by another thread may be lost.
    let before = header.window_ns.load(Ordering::Relaxed);
    let after = before - (before >> WINDOW_COST_WEIGHT_LOG2) + (cost >> WINDOW_COST_WEIGHT_LOG2);
    header.window_ns.store(after, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: Account = Account {
        share: 10_000,
        least: 28_000_000,
        cpu: 0,
        spent: 0,
        window: 20_000,
        toll: 0,
        tick: 0,
    };
    const SECOND_NS: u64 = 1_000_000_000;

    /// Runs for `until` nanoseconds. Returns the number of windows, the time spent and the longest
    /// time without a window.
    fn run(account: Account, until: u64) -> (u64, u64, u64) {
        let (mut now, mut windows, mut longest) = (account, 0, 0);
        while now.cpu < until {
            let plan = plan_windows(&now);
            now.cpu += plan.period;
            now.spent += now.window
                + if plan.at_ticks {
                    SIGNAL_COST_AT_TICK_NS
                } else {
                    now.toll
                };
            windows += 1;
            longest = longest.max(plan.period);
        }
        (windows, now.spent, longest)
    }

    #[test]
    fn the_budget_is_kept_and_used() {
        for (window, toll, tick) in [
            (20_000, 0, 0),
            (20_000, 45_000, 0),
            (20_000, 45_000, 4_000_000),
            (5_000, 1_000, 0),
            (100_000, 0, 0),
        ] {
            let account = Account {
                window,
                toll,
                tick,
                ..ACCOUNT
            };
            for until in [
                SECOND_NS / 10,
                SECOND_NS / 2,
                SECOND_NS,
                5 * SECOND_NS,
                60 * SECOND_NS,
            ] {
                let (windows, spent, longest) = run(account, until);
                let allowed = allowed(&account, until);
                // The trickle is spent on top of the allowed time.
                assert!(
                    spent <= allowed + allowed / 8 + window + toll,
                    "{account:?} {until}: {windows} windows, {spent} ns"
                );
                assert!(longest <= MAX_WINDOW_DISTANCE_NS);
                let most = until / MIN_WINDOW_DISTANCE_NS;
                if tick == 0 && until >= 5 * SECOND_NS {
                    assert!(
                        spent > allowed / 2 || windows > most / 2,
                        "{account:?} {until}: {windows} windows, {spent} ns"
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_allowed_grows_to_the_share() {
        let ms = |seconds: u64| allowed(&ACCOUNT, seconds * SECOND_NS) / 1_000_000;
        assert_eq!(allowed(&ACCOUNT, SECOND_NS / 4), 14_000_000);
        assert_eq!((ms(1), ms(10), ms(60)), (30, 100, 600));
    }

    #[test]
    fn short_runs_have_hundreds_of_windows() {
        assert!(run(ACCOUNT, SECOND_NS / 2).0 >= 500);
        let dear = Account {
            toll: 45_000,
            tick: 4_000_000,
            ..ACCOUNT
        };
        assert!(run(dear, SECOND_NS / 2).0 >= 350);
    }

    #[test]
    fn ticks_take_over_where_they_bring_as_much() {
        let dear = Account {
            toll: 45_000,
            tick: 4_000_000,
            ..ACCOUNT
        };
        assert!(!plan_windows(&dear).at_ticks);
        let late = Account {
            cpu: 60 * SECOND_NS,
            spent: 605_000_000,
            ..dear
        };
        assert!(plan_windows(&late).at_ticks && plan_windows(&late).period >= 8_000_000);
        // The budget asks for more windows than there are ticks.
        let much = Account {
            share: 200_000,
            ..late
        };
        assert!(!plan_windows(&much).at_ticks && plan_windows(&much).period < 4_000_000);
    }

    #[test]
    fn no_numbers_make_it_panic() {
        for big in [0, 1, u64::MAX / 4, u64::MAX] {
            for small in [0, 1, u64::MAX / 4] {
                let account = Account {
                    share: 1_000_000,
                    least: small,
                    cpu: big,
                    spent: big,
                    window: small,
                    toll: big,
                    tick: small / 8,
                };
                let period = plan_windows(&account).period;
                assert!(
                    (MIN_WINDOW_DISTANCE_NS..=MAX_WINDOW_DISTANCE_NS.max(small)).contains(&period)
                );
            }
        }
    }
}
