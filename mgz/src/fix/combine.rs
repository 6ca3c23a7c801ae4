//! Combination of changes that help alone, one by one.

use crate::fix::bench::{Bench, Tested};
use crate::fix::document::{Measured, Outcome, Tried};
use crate::fix::screen;
use crate::fix::sequential::Verdict;
use std::path::Path;

/// Builds programs with changes.
pub trait Maker {
    /// A change of a program.
    type Change: Clone;
    /// A changed program.
    type Made: AsRef<Path>;

    /// Builds the program with a change. The inner error is the reason why there is none.
    fn make(&mut self, change: &Self::Change) -> anyhow::Result<Result<Self::Made, String>>;

    /// Combines two changes. `None` if they exclude each other.
    fn joined(&self, one: &Self::Change, other: &Self::Change) -> Option<Self::Change>;
}

/// Adds the kept changes to the best one, as long as each gains more. The result is timed again,
/// because the best of several is partly due to chance. `changes`: those of `tried`.
pub fn together<M: Maker>(
    bench: &Bench,
    original: &Path,
    maker: &mut M,
    tried: &mut [Tried],
    changes: &[M::Change],
) -> anyhow::Result<Option<(M::Change, Measured, M::Made)>> {
    let gain = |t: &Tried| t.measured.map_or(0.0, |m| m.speedup.value);
    let mut order: Vec<usize> = (0..tried.len())
        .filter(|&n| tried[n].outcome == Outcome::Kept)
        .collect();
    order.sort_by(|&a, &b| gain(&tried[b]).total_cmp(&gain(&tried[a])));
    let Some((&first, rest)) = order.split_first() else {
        return Ok(None);
    };
    let mut best = changes[first].clone();
    let mut made = match maker.make(&best)? {
        Ok(made) => made,
        Err(why) => {
            drop_kept(tried, &why);
            return Ok(None);
        }
    };
    for &number in rest {
        screen::combine(&tried[number]);
        let why = match maker.joined(&best, &changes[number]) {
            None => "a kept remedy changes the same place".to_owned(),
            Some(joined) => match maker.make(&joined)? {
                Err(why) => why,
                Ok(new) => match bench.test(made.as_ref(), new.as_ref())? {
                    Tested::Timed(Verdict::Faster, _) => {
                        (best, made) = (joined, new);
                        continue;
                    }
                    Tested::Timed(..) => {
                        "it helps alone, and adds no gain above 1 % to the others".into()
                    }
                    Tested::Different(why) => why,
                },
            },
        };
        tried[number].outcome = Outcome::Dropped;
        tried[number].reason = why;
    }
    if let Some(measured) = tried[first].measured.filter(|_| tried.len() == 1) {
        return Ok(Some((best, measured, made)));
    }
    screen::confirm();
    let why = match bench.test(original, made.as_ref())? {
        Tested::Timed(Verdict::Faster, measured) => return Ok(Some((best, measured, made))),
        Tested::Timed(..) => "a second measurement did not confirm a gain above 1 %".into(),
        Tested::Different(why) => why,
    };
    drop_kept(tried, &why);
    Ok(None)
}

fn drop_kept(tried: &mut [Tried], why: &str) {
    for one in tried.iter_mut().filter(|t| t.outcome == Outcome::Kept) {
        one.outcome = Outcome::Dropped;
        why.clone_into(&mut one.reason);
    }
}
