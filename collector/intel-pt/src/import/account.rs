//! Kept and lost data of an import, for the manifest.

use crate::import::measured::generated::GeneratedNames;
use crate::import::{Outcome, measured, threads_of};
use mgz_annotations_schema::manifest::Manifest;
use mgz_annotations_schema::{RowsIn, SamplingUnit, TraceBackend, TraceMode, TriggerEvent};
use mgz_collector::trace::dir;
use mgz_collector::util::text::{bytes, count};
use mgz_perf_data::Session;
use mgz_perf_data::session::{FileLoss, SampledEvent, Sampling};

/// A manifest with the facts in the file.
pub fn begin_import(session: &Session<'_>) -> Manifest {
    let mode = match (session.windows.is_empty(), session.is_snapshot()) {
        // A full trace without PT data would describe a program without loads.
        _ if !session.holds_pt() => TraceMode::Samples,
        (false, _) => TraceMode::Samples,
        (true, true) => TraceMode::Snapshot,
        (true, false) => TraceMode::Full,
    };
    let mut manifest = dir::begin_manifest(session.command.clone(), mode, 0, 0);
    manifest.backend = match session.holds_pt() {
        true => TraceBackend::Pt,
        false => TraceBackend::Perf,
    };
    // The file does not contain the time of the recording.
    manifest.started.clear();
    manifest.host = session.host.clone();
    // Ranks belong to the recording, and the file does not contain them.
    (manifest.rank, manifest.world_size, manifest.local_rank) = (None, None, None);
    manifest.cpu = session.processor.clone();
    // The recording's machine may have other caches than this one.
    manifest.caches.clear();
    manifest.memory_costs = None;
    if manifest.mode == TraceMode::Samples {
        triggers(&mut manifest, session);
    }
    manifest
}

/// The triggers of samples. If events or periods differ, each is named, and the manifest has no
/// single period.
fn triggers(manifest: &mut Manifest, session: &Session<'_>) {
    let used = |sampling: &&Sampling| sampling.windows > 0;
    let all: Vec<_> = session.sampling.iter().filter(used).collect();
    let Some(first) = all.first() else { return };
    let same = all.iter().all(|s| s.trigger == first.trigger);
    manifest.unit = match same {
        true => unit(first.trigger),
        false => SamplingUnit::Mixed,
    };
    manifest.trigger = manifest.unit.to_string();
    manifest.trigger_event = Some(match manifest.unit {
        SamplingUnit::Loads => TriggerEvent::Loads,
        SamplingUnit::CpuClock => TriggerEvent::CpuTime,
        _ => TriggerEvent::Other,
    });
    let (least, most) = all.iter().fold((u64::MAX, 0), |(least, most), s| {
        (least.min(s.periods.0), most.max(s.periods.1))
    });
    if same && least == most {
        manifest.period = least;
        return;
    }
    let each = |s: &&Sampling| {
        let unit = match unit(s.trigger) {
            SamplingUnit::CpuClock => "ns".to_owned(),
            other => other.to_string(),
        };
        let (least, most) = s.periods;
        let period = if least == most {
            count(least as f64)
        } else {
            format!("{} to {}", count(least as f64), count(most as f64))
        };
        format!("{} samples every {period} {unit}", count(s.windows as f64))
    };
    let list: Vec<_> = all.iter().map(each).collect();
    manifest.trigger_why = list.join(", ");
}

fn unit(event: SampledEvent) -> SamplingUnit {
    match event {
        SampledEvent::Loads => SamplingUnit::Loads,
        SampledEvent::CpuClock => SamplingUnit::CpuClock,
        SampledEvent::Other => SamplingUnit::Events,
    }
}

/// Adds the decoded counts to the manifest.
pub fn enter(
    manifest: &mut Manifest,
    session: &Session<'_>,
    outcome: &Outcome,
    generated: GeneratedNames,
) {
    manifest.threads = threads_of(outcome);
    let first = outcome
        .threads
        .values()
        .map(|k| k.begin_ns)
        .filter(|&t| t > 0)
        .min();
    let last = outcome.threads.values().map(|k| k.end_ns).max();
    manifest.wall_seconds = first
        .zip(last)
        .map_or(0.0, |(first, last)| last.saturating_sub(first) as f64 / 1e9);
    manifest.totals.records_kept = outcome.threads.values().map(|k| k.slots).sum();
    manifest.totals.samples = outcome.threads.values().map(|k| k.stretches).sum();
    manifest.totals.spill_bytes = outcome.spill_bytes;
    losses(manifest, session, outcome);
    let measured = manifest.measured.iter();
    let measured = measured.flat_map(|counts| measured::problems(counts, generated.unnamed));
    let measured: Vec<String> = measured.collect();
    manifest.problems.extend(generated.problems);
    manifest.problems.extend(measured);
}

/// Estimated number of executed loads, from the number of samples. Each sample represents its own
/// period of loads, of instrumented code or not; a lost one represents the others' average.
pub fn executed(session: &Session<'_>) -> Option<f64> {
    let (mut windows, mut loads) = (0, 0.0);
    for sampling in session.sampling.iter().filter(|s| s.windows > 0) {
        if sampling.trigger != SampledEvent::Loads {
            return None;
        }
        windows += sampling.windows;
        loads += sampling.events? as f64;
    }
    let lost = session.loss.lost_samples as f64;
    (windows > 0).then(|| loads * (1.0 + lost / windows as f64))
}

/// Sentences about missing shares of the recording. They are shown to the user first.
fn shares(session: &Session<'_>, outcome: &Outcome) -> Vec<String> {
    let (totals, file) = (&outcome.totals, &session.loss);
    let percent = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
    let mut list = Vec::new();
    let overflows = totals.loss.overflows;
    if overflows > 0 {
        let where_to = if session.is_full() {
            format!(
                "the processor lost packets {} times, once in {} of PT data,",
                count(overflows as f64),
                bytes(totals.bytes / overflows)
            )
        } else {
            format!(
                "{:.1}% of the windows ({} of {}) lack records: the processor lost packets there ({} overflows)",
                percent(totals.overflowed_samples, totals.samples),
                count(totals.overflowed_samples as f64),
                count(totals.samples as f64),
                count(overflows as f64)
            )
        };
        list.push(format!(
            "{where_to} because memory could not take them; instrument fewer functions (`mgz-instrument --functions`)"
        ));
    }
    let lost = file.lost_samples + file.lost_records;
    if lost > 0 {
        let all = session.samples + lost;
        list.push(format!(
            "{:.1}% of samples and other records ({} of {}) were lost, since what reads them did not keep up; mappings or context switches may be among them; choose a longer period or larger buffers",
            percent(lost, all),
            count(lost as f64),
            count(all as f64)
        ));
    }
    list
}

/// A key of the manifest's losses, the number lost, and a sentence if the loss is unusual.
type Loss = (&'static str, u64, &'static str);

/// Losses in PT data. Losses at the ends of every window are usual, so they have no sentence.
fn in_pt_data(outcome: &Outcome) -> Vec<Loss> {
    let totals = &outcome.totals;
    let loss = &totals.loss;
    vec![
        ("bytes_before_psb", loss.before_psb_bytes, ""),
        ("ptwrites_before_psb", totals.before_psb_ptwrites, ""),
        ("torn_pairs", loss.torn + loss.torn_at_end, ""),
        ("torn_by_switch", totals.torn_by_switch, ""),
        ("torn_records", outcome.torn_records, ""),
        ("overflows", loss.overflows, ""),
        (
            "bad_packets",
            loss.bad_packets,
            "places in the PT data are no packets; what follows them up to the next PSB is missing",
        ),
        ("bad_bytes", loss.bad_bytes, ""),
        ("holes", totals.holes, "holes in the PT data"),
        (
            "ptwrites_without_ip",
            outcome.without_ip,
            "ptwrites have no address and cannot be told apart; record with fup_on_ptw",
        ),
        (
            "unresolved_ips",
            outcome.unresolved,
            "ptwrites are at addresses that no sidecar has; give all of them with --annotations, of the recorded build",
        ),
        (
            "doubtful_ips",
            outcome.doubtful,
            "ptwrites are of files that two sidecars fit",
        ),
    ]
}

/// Losses in the rest of the file.
fn in_file(file: &FileLoss) -> Vec<Loss> {
    vec![
        (
            "aux_truncated",
            file.aux_truncated,
            "times PT data was lost because perf did not keep up; record with a larger buffer (-m ,64M) or fewer functions",
        ),
        (
            "aux_truncated_unsized",
            file.aux_empty,
            "of these times no size was told: there was no room at all, or (Linux before 6.13) a buffer filled up at once and all of it is missing",
        ),
        (
            "aux_partial",
            file.aux_partial,
            "places in which the kernel says that PT data has gaps",
        ),
        ("lost_records", file.lost_records, ""),
        ("lost_samples", file.lost_samples, ""),
        (
            "throttled",
            file.throttled,
            "times sampling was throttled; choose a longer period",
        ),
        (
            "noted_errors",
            file.noted_errors,
            "errors were noted by perf while recording",
        ),
        (
            "bad_records",
            file.bad_records,
            "records of the file are malformed",
        ),
        ("odd_samples", file.odd_samples, ""),
        (
            "bad_sections",
            file.bad_sections,
            "sections of the file's header are cut off or lie outside of it",
        ),
        (
            "guest_samples",
            file.guest_samples,
            "samples were taken in virtual machines and are left out",
        ),
        ("guest_mappings", file.guest_mappings, ""),
        (
            "unknown_events",
            file.unknown_ids,
            "records of the file name an unknown event",
        ),
        (
            "bad_compressed",
            file.bad_compressed,
            "compressed records could not be unpacked",
        ),
        (
            "file_cut_bytes",
            file.cut_bytes,
            "bytes of the file are in no whole record",
        ),
    ]
}

/// Adds counts and sentences about missing data to the manifest.
fn losses(manifest: &mut Manifest, session: &Session<'_>, outcome: &Outcome) {
    let (totals, file) = (&outcome.totals, &session.loss);
    manifest.problems.extend(shares(session, outcome));
    for (key, n, sentence) in in_pt_data(outcome).into_iter().chain(in_file(file)) {
        if n > 0 {
            manifest.totals.dropped.insert(key.into(), n);
            if !sentence.is_empty() {
                manifest.problems.push(format!("{n} {sentence}"));
            }
        }
    }
    if file.incomplete {
        manifest
            .problems
            .push("the file is not complete: perf did not finish it, or it was cut".into());
    }
    for (key, n) in [
        ("without_ptwrites", totals.empty_samples),
        ("overlapping", totals.overlaps),
        ("overflowed", totals.overflowed_samples),
    ] {
        if n > 0 {
            manifest.totals.truncated_windows.insert(key.into(), n);
        }
    }
}

/// Sets the number of executed loads, once the rows are counted.
pub fn settle(manifest: &mut Manifest, executed: Option<f64>) {
    let totals = &mut manifest.totals;
    totals.loads_executed = None;
    // Loads that the expansion counts as cut were not executed, since the code was left before
    // them.
    let missing = |(key, n): (&String, &u64)| {
        let harmless = [
            "cut_loads",
            "implied_const_unplaced",
            "bad_sections",
            "guest_mappings",
        ];
        *n > 0 && !harmless.contains(&key.as_str())
    };
    if manifest.mode.has_all_loads()
        && manifest.data == RowsIn::Samples
        && !totals.dropped.iter().any(missing)
    {
        totals.records_executed = totals.records_kept;
        let unplaced = totals
            .dropped
            .get("implied_const_unplaced")
            .copied()
            .unwrap_or(0);
        totals.loads_executed = Some(totals.loads_recorded() + unplaced);
        for thread in &mut manifest.threads {
            thread.records_executed = thread.records_kept;
        }
    }
    let recorded = totals.loads_recorded() as f64;
    totals.loads_executed_estimate = executed.filter(|&e| e >= recorded && e > 0.0);
}
