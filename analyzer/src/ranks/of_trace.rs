//! The result of one trace for its rank.

use crate::data::counts::Metrics;
use crate::data::object_map::is_address;
use crate::estimate::row_estimates::Hats;
use crate::ranks::spread::RankSpread;
use crate::ranks::{
    COLUMNS, HeatRow, METRICS, Metric, PROFILE, RankFinding, RankName, RankRow, Ranks, RowNames,
    Spreads,
};
use crate::report::Analysis;
use mgz_annotations_schema::manifest::Manifest;

/// Converts a floating-point number that cannot be negative.
fn whole(x: f64) -> u64 {
    if x.is_finite() { x.round() as u64 } else { 0 }
}

fn loads(metrics: &Metrics, hats: &Hats) -> u64 {
    hats.accesses
        .map_or(metrics.accesses + metrics.implied, whole)
}

fn spreads(metrics: &Metrics, hats: &Hats, rank: &RankName) -> Spreads {
    let of = |value| RankSpread::of(value, rank);
    Spreads {
        loads: of(loads(metrics, hats)),
        footprint: of(hats.footprint.map_or(metrics.footprint, whole)),
        distance: metrics
            .distance_mean
            .map_or_else(RankSpread::default, |d| of(whole(d * 1e3))),
    }
}

/// The name of an object, or a substitute for an address: memory without a name is named by its
/// address, which differs between ranks.
fn common(object: &str) -> String {
    if is_address(object) {
        "[anonymous memory]".into()
    } else {
        object.to_owned()
    }
}

/// The slot of a function in the profile.
fn place(function: &str) -> usize {
    let hash = function.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as usize % PROFILE
}

fn profile(analysis: &Analysis, all: u64) -> Vec<u16> {
    let mut sums = [0_u64; PROFILE];
    for row in &analysis.functions {
        sums[place(&row.function)] += loads(&row.loads.metrics, &row.loads.hats);
    }
    sums.iter()
        .map(|&sum| (u128::from(sum) * 1000 / u128::from(all.max(1))).min(1000) as u16)
        .collect()
}

/// The heat map on the common grid: each cell is added to the column that contains its middle.
fn heat(analysis: &Analysis) -> Vec<(String, HeatRow)> {
    let Some(map) = &analysis.heat_map else {
        return Vec::new();
    };
    let begin = map.columns.iter().map(|c| c.from_ns).min().unwrap_or(0);
    let end = map.columns.iter().map(|c| c.to_ns).max().unwrap_or(0);
    let span = u128::from(end.saturating_sub(begin).max(1));
    let column = |from: u64, to: u64| {
        let middle = u128::from(from - begin) + u128::from(to.saturating_sub(from) / 2);
        ((middle * COLUMNS as u128 / span) as usize).min(COLUMNS - 1)
    };
    map.rows
        .iter()
        .map(|row| {
            let mut out = HeatRow {
                loads: vec![0; COLUMNS],
                distances: vec![0; COLUMNS],
            };
            for (k, time) in map.columns.iter().enumerate() {
                let to = column(time.from_ns, time.to_ns);
                out.loads[to] += row.accesses[k];
                out.distances[to] +=
                    row.distances[k].map_or(0, |distance| whole(distance * row.accesses[k] as f64));
            }
            (common(&row.label), out)
        })
        .collect()
}

/// The result of one trace. `trace` is the name of its folder.
pub fn ranks_of_trace(analysis: &Analysis, manifest: &Manifest, trace: &str, key: String) -> Ranks {
    let summary = &analysis.summary;
    let name = RankName {
        rank: manifest.rank,
        host: manifest.host.clone(),
        trace: trace.to_owned(),
    };
    let all = loads(&summary.metrics, &summary.hats);
    let known = summary.metrics.accesses + summary.metrics.implied > 0;
    let seconds = |s: f64| (s > 0.0).then(|| whole(s * 1e6));
    let metrics = METRICS.map(|(metric, ..)| match metric {
        Metric::Loads => Some(all),
        Metric::Footprint => Some(
            summary
                .hats
                .footprint
                .map_or(summary.metrics.footprint, whole),
        ),
        Metric::Distance => summary.metrics.distance_mean.map(|d| whole(d * 1e3)),
        Metric::Misses => summary
            .misses
            .as_ref()
            .and_then(|m| m.last()?.ratio)
            .map(|[_, ratio, _]| whole(ratio * 1e6)),
        Metric::Cpu => seconds(manifest.cpu_seconds),
        Metric::Wall => seconds(manifest.wall_seconds),
    });
    let row = RankRow {
        key,
        world_size: manifest.world_size,
        local_rank: manifest.local_rank,
        state: manifest.state.to_string(),
        program_status: summary.trace.program_status.to_string(),
        metrics: metrics.into(),
        profile: profile(analysis, all),
        name: name.clone(),
    };
    let mut ranks = Ranks {
        block: summary.block,
        ..Ranks::default()
    };
    let mut put = |to: fn(&mut Ranks) -> &mut std::collections::BTreeMap<RowNames, Spreads>,
                   names: RowNames,
                   of: Spreads| {
        to(&mut ranks).entry(names).or_default().add(of);
    };
    for row in &analysis.functions {
        let of = spreads(&row.loads.metrics, &row.loads.hats, &name);
        let names = vec![row.function.clone(), row.module.clone()];
        put(|r| &mut r.functions, names, of);
    }
    for row in &analysis.lines {
        let of = spreads(&row.loads.metrics, &row.loads.hats, &name);
        let names = vec![
            row.function.clone(),
            row.module.clone(),
            row.file.clone(),
            row.line.to_string(),
        ];
        put(|r| &mut r.lines, names, of);
    }
    for row in &analysis.objects {
        let of = spreads(&row.metrics, &row.hats, &name);
        let names = vec![common(&row.object), row.kind.to_string()];
        put(|r| &mut r.objects, names, of);
    }
    for finding in &analysis.findings.list {
        let names = vec![
            finding.kind.to_owned(),
            finding.function.clone(),
            finding.file.clone(),
            finding.line.to_string(),
            common(&finding.object),
        ];
        let finding = RankFinding {
            score: RankSpread::of(whole(finding.score * 100.0), &name),
            title: finding.title.clone(),
            finding: finding.finding.to_string(),
            advice: finding.advice.clone(),
        };
        // If a rank has several, the first is the most important.
        ranks.findings.entry(names).or_insert(finding);
    }
    for (label, row) in heat(analysis) {
        let into = ranks.heat.entry(label).or_default();
        super::add(&mut into.loads, &row.loads);
        super::add(&mut into.distances, &row.distances);
    }
    for warning in &analysis.warnings {
        ranks.warnings.insert(warning.clone(), 1);
    }
    if !known {
        ranks.warnings.insert("the trace has no loads".into(), 1);
    }
    ranks.ranks.push(row);
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_are_the_same_in_all_ranks() {
        assert_eq!(
            common("0x7fb495145000 (2.0 MiB)"),
            common("0x7fdf78d3b000 (2.0 MiB)")
        );
        assert_eq!(common("grid"), "grid");
    }
}
