//! The choice of recorded ranks.

use std::str::FromStr;

/// `--ranks`: numbers and ranges, e.g. `0,7,16-19`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankList(Vec<(u32, u32)>);

impl RankList {
    /// True if the list contains a rank.
    pub fn contains(&self, rank: u32) -> bool {
        self.0.iter().any(|&(from, to)| (from..=to).contains(&rank))
    }
}

impl FromStr for RankList {
    type Err = String;

    fn from_str(text: &str) -> Result<RankList, String> {
        let wrong = |part: &str| {
            format!("{part:?} is no rank and no range of ranks; give e.g. --ranks 0,7,16-19")
        };
        let part = |part: &str| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong(part));
            let (from, to) = (number(from)?, number(to)?);
            (from <= to)
                .then_some((from, to))
                .ok_or_else(|| wrong(part))
        };
        text.split(',')
            .map(part)
            .collect::<Result<_, _>>()
            .map(RankList)
    }
}
