//! Order of processes and threads by age. The kernel assigns ids cyclically: after the highest one
//! it starts again with free low ids, so a thread may have a lower id than its creator.

use std::collections::BTreeMap;

/// Ids of a run fill a small arc of the circle: the oldest is the one after the widest gap.
fn oldest(sorted: &[u32], circle: u64) -> u32 {
    let before = |i: usize| match i {
        0 => u64::from(sorted[0]) + circle - u64::from(sorted[sorted.len() - 1]),
        _ => u64::from(sorted[i] - sorted[i - 1]),
    };
    // The lowest of equals.
    (0..sorted.len())
        .rev()
        .max_by_key(|&i| before(i))
        .map_or(0, |i| sorted[i])
}

/// Number of ids of the kernel (proc(5), `pid_max`).
fn circle() -> u64 {
    std::fs::read_to_string("/proc/sys/kernel/pid_max")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1 << 22)
}

/// The values of each `(process, thread)`, in the order in which the threads were created.
pub fn oldest_first<T>(threads: &BTreeMap<(u32, u32), T>) -> Vec<(&(u32, u32), &T)> {
    let mut ids: Vec<u32> = threads
        .keys()
        .flat_map(|&(process, thread)| [process, thread])
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let first = oldest(&ids, circle());
    let mut all: Vec<_> = threads.iter().collect();
    all.sort_by_key(|&(&(process, thread), _)| (process < first, process, thread < first, thread));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_start_again() {
        let circle = u32::try_from(circle()).unwrap();
        let order = |ids: &[(u32, u32)]| {
            oldest_first(&ids.iter().map(|&id| (id, ())).collect())
                .iter()
                .map(|(id, _)| **id)
                .collect::<Vec<_>>()
        };
        let near = [(700, 700), (700, 701), (702, 702), (702, 705)];
        assert_eq!(order(&near), near);
        let (a, b) = (circle - 4, circle - 1);
        let wrapped = [
            (a, a),
            (a, a + 1),
            (a, 333),
            (a, 340),
            (b, b),
            (b, 350),
            (360, 360),
        ];
        assert_eq!(order(&wrapped), wrapped);
        assert_eq!(order(&[(9, 9)]), [(9, 9)]);
        assert!(order(&[]).is_empty());
    }
}
