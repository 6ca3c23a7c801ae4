//! Mean of the sample of heap blocks if logging has a budget: a share of the program's CPU time, and
//! a fixed time at first.
//!
//! All processes of a recording use one account, in the log's head.

use super::params::{
    COST_ELSEWHERE_NS, CPU_SHARE_PPM, EXHAUSTED_SHARE_LOG2, FIRST_BUDGET_NS, MAX_MEAN_BYTES,
    MIN_CPU_TIME_OF_RATE_NS, MIN_MEAN_BYTES, MIN_TIME_OF_CORRECTION_NS, TIME_SHARE_OF_CORRECTION,
};

/// State of the budget account.
#[derive(Clone, Copy, Debug)]
pub struct HeapAccount {
    /// CPU time of the program so far, nanoseconds.
    pub cpu: u64,
    /// Nanoseconds that logging took inside of allocation calls.
    pub spent: u64,
    /// Blocks that were logged.
    pub blocks: u64,
    /// Bytes that were allocated.
    pub bytes: u64,
}

fn share(ns: u64) -> f64 {
    ns as f64 * (CPU_SHARE_PPM as f64 / 1e6)
}

/// Average distance in allocated bytes between logged blocks that the budget allows.
pub fn mean(account: &HeapAccount) -> u64 {
    let ahead = (account.cpu / TIME_SHARE_OF_CORRECTION).max(MIN_TIME_OF_CORRECTION_NS);
    let spent = account.spent + account.blocks * COST_ELSEWHERE_NS;
    let allowed = FIRST_BUDGET_NS as f64 + share(account.cpu.saturating_add(ahead)) - spent as f64;
    let allowed = allowed.max(share(ahead) / f64::from(1 << EXHAUSTED_SHARE_LOG2));
    let each = (spent / account.blocks.max(1)).max(COST_ELSEWHERE_NS) as f64;
    let rate = account.bytes as f64 / account.cpu.max(MIN_CPU_TIME_OF_RATE_NS) as f64;
    let mean = rate * ahead as f64 * each / allowed;
    (mean as u64).clamp(MIN_MEAN_BYTES, MAX_MEAN_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates `seconds` CPU seconds of a program that allocates `rate` bytes a second. Returns
    /// the share of the time that logging took, and the number of logged blocks.
    fn run(seconds: f64, rate: impl Fn(f64) -> f64) -> (f64, u64) {
        const BLOCK_COST_NS: u64 = 500;
        let mut account = HeapAccount {
            cpu: 0,
            spent: 0,
            blocks: 0,
            bytes: 0,
        };
        let mut now = 0.0;
        loop {
            let mean = mean(&account);
            now += mean as f64 / rate(now);
            if now > seconds {
                let spent = account.spent + account.blocks * COST_ELSEWHERE_NS;
                return (spent as f64 / 1e9 / seconds, account.blocks);
            }
            // The account's CPU time is updated only from time to time.
            account.cpu = (now * 500.0) as u64 * 2_000_000;
            account.blocks += 1;
            account.bytes += mean;
            account.spent += BLOCK_COST_NS;
        }
    }

    #[test]
    fn logging_takes_its_share_whatever_is_allocated() {
        for rate in [1e6, 1e8, 1e10, 1e12] {
            let (took, blocks) = run(20.0, |_| rate);
            assert!(took < 0.003, "{rate}: {took}");
            assert!(
                blocks as f64 > (20.0 * rate / 17e3).min(20_000.0),
                "{rate}: {blocks}"
            );
        }
    }

    #[test]
    fn a_short_run_has_blocks_and_no_more_than_the_fixed_time() {
        let (took, blocks) = run(0.1, |_| 1e10);
        assert!(took * 0.1 < 0.006 && blocks > 500, "{took} {blocks}");
    }

    #[test]
    fn a_phase_with_a_higher_rate_costs_no_more_than_what_is_left() {
        let (took, _) = run(10.0, |now| if now < 5.0 { 1e5 } else { 1e10 });
        assert!(took < 0.004, "{took}");
        let (took, blocks) = run(10.0, |now| if now < 1.0 { 1e10 } else { 1e8 });
        assert!(took < 0.004 && blocks > 3_000, "{took} {blocks}");
    }
}
