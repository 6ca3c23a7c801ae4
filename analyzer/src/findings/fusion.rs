//! Loops of one function that stream through the same object one after the other. A joined loop
//! would read it only once.

use crate::findings::cause::Cause;
use crate::findings::mechanisms::streaming;
use crate::findings::{Finding, SourceLine};

/// Merges findings of such loops.
pub(super) fn join(causes: &[&Cause], list: &mut Vec<Finding>) {
    let object = |c: &Cause| c.objects.first().map_or(0, |o| o.0);
    let mut gone = vec![false; list.len()];
    for i in 0..list.len() {
        if gone[i] || !causes[i].rule.is(&streaming::STREAMING_RULE) {
            continue;
        }
        let same: Vec<usize> = (i + 1..list.len())
            .filter(|&j| {
                !gone[j]
                    && causes[j].rule.is(&streaming::STREAMING_RULE)
                    && list[j].function == list[i].function
                    && object(causes[i]) != 0
                    && object(causes[j]) == object(causes[i])
                    && causes[j].regions != causes[i].regions
            })
            .collect();
        if same.is_empty() {
            continue;
        }
        let mut loops = vec![list[i].line];
        for j in same {
            gone[j] = true;
            loops.push(list[j].line);
            let other = list[j].clone();
            let into = &mut list[i];
            into.score += other.score;
            into.score_lo += other.score_lo;
            into.score_hi += other.score_hi;
            into.loads += other.loads;
            into.waiting = into.waiting.and(other.waiting);
            for (mine, more) in [
                (&mut into.time.value, other.time.value),
                (&mut into.time.lo, other.time.lo),
                (&mut into.time.hi, other.time.hi),
            ] {
                *mine = mine.zip(more).map(|(a, b)| (a + b).min(100.0));
            }
            into.also.push(SourceLine {
                file: other.file,
                line: other.line,
            });
            into.load_addresses.extend(other.load_addresses);
        }
        loops.sort_unstable();
        let texts: Vec<String> = loops.iter().map(u32::to_string).collect();
        let into = &mut list[i];
        into.kind = "fusion";
        into.title = "loops that stream through the same data".into();
        into.finding.evidence = into.finding.to_string();
        into.finding.mechanism = format!(
            "{} loops (lines {}) read the same memory one after the other, and it is evicted from the caches in between",
            loops.len(),
            texts.join(", ")
        );
        into.advice = "join the loops, or let them all work on one block that fits a cache before they go on to the next".into();
    }
    let mut at = 0;
    list.retain(|_| {
        at += 1;
        !gone[at - 1]
    });
}
