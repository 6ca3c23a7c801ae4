//! Other programs on the machine, by the kernel's texts.

/// Nanoseconds of a tick of `/proc/stat`: the kernel shows 100 a second on each x86-64 machine.
const TICK_NS: u64 = 10_000_000;
/// Share of a processor's time from which on other programs disturb a measurement. Source: Chosen.
const MIN_SHARE_OF_OTHERS: f64 = 0.2;

/// CPU time of all processors so far, without idle time, by `/proc/stat`. Other guests' time on
/// these processors (steal) counts.
pub fn busy_ns(stat: &str) -> Option<u64> {
    let mut words = stat.lines().next()?.split_whitespace();
    if words.next() != Some("cpu") {
        return None;
    }
    // user, nice, system, idle, iowait, irq, softirq, steal
    let ticks: Vec<u64> = words.take(8).filter_map(|w| w.parse().ok()).collect();
    let idle: u64 = ticks.get(3..5)?.iter().sum();
    Some((ticks.iter().sum::<u64>() - idle) * TICK_NS)
}

/// True if other programs ran while one thread measured for `own_ns`.
pub fn others_ran((before, after): (Option<u64>, Option<u64>), own_ns: u64) -> bool {
    let (Some(before), Some(after)) = (before, after) else {
        return false;
    };
    let others = after.saturating_sub(before).saturating_sub(own_ns);
    others as f64 >= MIN_SHARE_OF_OTHERS * own_ns as f64
}

/// True if no thread but the calling one runs now, by `/proc/loadavg`.
pub fn is_quiet(loadavg: &str) -> bool {
    let running = loadavg.split_whitespace().nth(3);
    let running = running.and_then(|word| word.split('/').next()?.parse::<u32>().ok());
    running.is_some_and(|n| n <= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_other_programs_is_counted() {
        let stat = |user: u64| {
            busy_ns(&format!(
                "cpu  {user} 10 20 99999 50 1 2 3 7 0\ncpu0 1 2 3 4\n"
            ))
        };
        assert_eq!(stat(100), Some(136 * TICK_NS));
        let second = 1_000_000_000;
        assert!(!others_ran((stat(0), stat(100)), second));
        assert!(others_ran((stat(0), stat(200)), second));
        assert_eq!((busy_ns(""), busy_ns("cpu 1")), (None, None));
        assert!(!others_ran((None, stat(200)), second));
    }

    #[test]
    fn running_threads_are_read() {
        assert!(is_quiet("0.10 0.20 0.30 1/231 4711\n"));
        assert!(!is_quiet("0.10 0.20 0.30 3/231 4711\n"));
        assert!(!is_quiet(""));
    }
}
