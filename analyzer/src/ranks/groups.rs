//! Outliers among ranks, and groups of similar ranks.

use crate::columns;
use crate::output::document::{ColumnUnit, DocumentColumn, DocumentTable, value};
use crate::ranks::{METRICS, RankRow, Ranks};
use mgz_models::statistics::{DEVIATIONS_PER_MEDIAN_DEVIATION, lower_median};
use serde_json::Value;

/// Outliers are further from the median than this many times the median distance from it, scaled to
/// a standard deviation…
const MIN_OUTLIER_DISTANCE: f64 = 3.5 * DEVIATIONS_PER_MEDIAN_DEVIATION;
/// …and than this part of the median. Source: Chosen.
const MIN_OUTLIER_SHARE: f64 = 0.1;
/// Maximum number of outliers shown.
const MAX_OUTLIERS: usize = 100;
/// Metrics of ranks in one group differ by at most this part. Source: Chosen.
const MAX_DIFFERENCE_IN_GROUP: f64 = 0.1;
/// Their profiles differ by at most this much in all, thousandths. Source: Chosen.
const MAX_PROFILE_DIFFERENCE: u32 = 100;
/// Maximum number of clusters; the last one has all ranks outside of the others.
const MAX_CLUSTERS: usize = 32;
/// Number of the metrics that describe a rank's work: loads, footprint and distance. Times vary by
/// chance.
const WORK_METRICS: usize = 3;

/// Numbers as ranges: `0-3,7`.
pub(crate) fn list_of(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let text = |&(from, to): &(u32, u32)| {
        if from == to {
            from.to_string()
        } else {
            format!("{from}-{to}")
        }
    };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

fn median(values: &mut [f64]) -> f64 {
    lower_median(values, f64::total_cmp).unwrap_or(0.0)
}

/// Ranks whose metrics are far from those of the others, the furthest first.
pub(crate) fn outliers(ranks: &Ranks) -> DocumentTable {
    let mut found: Vec<(f64, &RankRow, &str, f64, f64)> = Vec::new();
    for (at, (_, name, unit)) in METRICS.iter().enumerate() {
        let mut values: Vec<f64> = ranks
            .ranks
            .iter()
            .filter_map(|r| r.metrics[at])
            .map(|v| v as f64)
            .collect();
        if values.len() < 3 {
            continue;
        }
        let middle = median(&mut values);
        let mut off: Vec<f64> = values.iter().map(|v| (v - middle).abs()).collect();
        let bound = (median(&mut off) * MIN_OUTLIER_DISTANCE).max(middle * MIN_OUTLIER_SHARE);
        for row in &ranks.ranks {
            let Some(v) = row.metrics[at].map(|v| v as f64) else {
                continue;
            };
            if (v - middle).abs() > bound && middle > 0.0 {
                found.push(((v / middle).ln().abs(), row, name, v * unit, middle * unit));
            }
        }
    }
    found.sort_by(|a, b| {
        b.0.total_cmp(&a.0)
            .then_with(|| (a.2, a.1).cmp(&(b.2, b.1)))
    });
    let rows = found.into_iter().take(MAX_OUTLIERS);
    DocumentTable {
        name: "outliers",
        title: "Ranks unlike the others".into(),
        columns: columns![
            rank: Text, host: Text, metric: Text, value: Number, median: Number, times: Number,
        ]
        .to_vec(),
        rows: rows
            .map(|(_, row, name, v, middle)| {
                vec![
                    row.name.shown().into(),
                    row.name.host.as_str().into(),
                    name.into(),
                    value(v),
                    value(middle),
                    value(v / middle),
                ]
            })
            .collect(),
        text_rows: 10,
    }
}

fn alike(a: &RankRow, b: &RankRow) -> bool {
    let near = |at: usize| match (a.metrics[at], b.metrics[at]) {
        (Some(a), Some(b)) => a.abs_diff(b) as f64 <= MAX_DIFFERENCE_IN_GROUP * a.max(b) as f64,
        (a, b) => a == b,
    };
    let apart: u32 = a
        .profile
        .iter()
        .zip(&b.profile)
        .map(|(a, b)| u32::from(a.abs_diff(*b)))
        .sum();
    apart <= MAX_PROFILE_DIFFERENCE && (0..WORK_METRICS).all(near)
}

/// Groups of similar ranks. Each rank joins the first earlier rank that is similar. Also returns
/// the cluster of each rank.
pub(crate) fn clusters(ranks: &Ranks) -> (DocumentTable, Vec<usize>) {
    let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut cluster_of = vec![0; ranks.ranks.len()];
    for (at, row) in ranks.ranks.iter().enumerate() {
        let known = groups
            .iter()
            .position(|(leader, _)| alike(&ranks.ranks[*leader], row));
        let group = match known {
            Some(group) => group,
            None if groups.len() < MAX_CLUSTERS => {
                groups.push((at, Vec::new()));
                groups.len() - 1
            }
            None => MAX_CLUSTERS - 1,
        };
        groups[group].1.push(at);
        cluster_of[at] = group;
    }
    // The greatest is number 0.
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|&g| (std::cmp::Reverse(groups[g].1.len()), g));
    let mut number = vec![0; groups.len()];
    order.iter().enumerate().for_each(|(n, &g)| number[g] = n);
    cluster_of.iter_mut().for_each(|c| *c = number[*c]);
    let mut columns = columns![cluster: Id, size: Count, members: Text].to_vec();
    columns.extend(
        METRICS[..WORK_METRICS]
            .iter()
            .map(|m| DocumentColumn(m.1, ColumnUnit::Number)),
    );
    let rows = order.iter().enumerate().map(|(n, &g)| {
        let members = &groups[g].1;
        let numbers: Option<Vec<u32>> = members.iter().map(|&m| ranks.ranks[m].name.rank).collect();
        let named = numbers.map_or_else(
            || {
                let names = members.iter().map(|&m| ranks.ranks[m].name.trace.as_str());
                names.take(16).collect::<Vec<_>>().join(",")
            },
            |numbers| list_of(&numbers),
        );
        let mut cells: Vec<Value> = vec![
            (n as u64).into(),
            (members.len() as u64).into(),
            named.into(),
        ];
        for (at, (_, _, unit)) in METRICS[..WORK_METRICS].iter().enumerate() {
            let mut values: Vec<f64> = members
                .iter()
                .filter_map(|&m| ranks.ranks[m].metrics[at])
                .map(|v| v as f64)
                .collect();
            cells.push(if values.is_empty() {
                Value::Null
            } else {
                value(median(&mut values) * unit)
            });
        }
        cells
    });
    let table = DocumentTable {
        name: "clusters",
        title: "Ranks that are alike (medians)".into(),
        columns,
        rows: rows.collect(),
        text_rows: 10,
    };
    (table, cluster_of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::RankName;

    fn row(rank: u32, loads: u64, profile: u16) -> RankRow {
        RankRow {
            name: RankName {
                rank: Some(rank),
                ..RankName::default()
            },
            key: rank.to_string(),
            world_size: Some(8),
            local_rank: None,
            state: "complete".into(),
            program_status: String::new(),
            metrics: vec![Some(loads), Some(100), None, None, None, None],
            profile: vec![profile, 1000 - profile],
        }
    }

    #[test]
    fn ranges_are_short() {
        assert_eq!(list_of(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(list_of(&[]), "");
    }

    #[test]
    fn alike_ranks_are_together_and_the_others_stand_out() {
        let ranks = Ranks {
            ranks: vec![
                row(0, 300, 500),
                row(1, 100, 500),
                row(2, 104, 500),
                row(3, 100, 900),
                row(4, 101, 510),
            ],
            ..Ranks::default()
        };
        let (table, of) = clusters(&ranks);
        assert_eq!(of, [1, 0, 0, 2, 0]);
        assert_eq!(table.rows[0][2], "1-2,4");
        let outliers = outliers(&ranks);
        assert_eq!(outliers.rows.len(), 1);
        assert_eq!(outliers.rows[0][0], "rank 0");
    }
}
