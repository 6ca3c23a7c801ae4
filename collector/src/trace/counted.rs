//! `--count`: from counts of records to loads by site, and `counts.parquet`.

use crate::soft::drain::count::CountsByProcess;
use crate::util::small_table;
use arrow_array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use mgz_annotations_schema::manifest::{COUNTS, Manifest};
use mgz_annotations_schema::sidecar::{Sidecar, SiteFlags, SiteKind};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Loads by module and site, with other counts.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CountedLoads {
    /// By module of the manifest and site.
    pub by_site: BTreeMap<(u16, u32), u64>,
    /// Sum of all loads.
    pub loads: u64,
    /// The part of `loads` from sites whose number of loads depends on unrecorded data (lanes of
    /// gathers, repeated string instructions that may do nothing). These counts are upper bounds.
    pub bounds: u64,
    /// Records of no module.
    pub unknown: u64,
    /// Records that belong to several modules, since one process has loaded one after the other.
    pub ambiguous: u64,
}

/// Divides the counts among the sites.
pub(crate) fn divide(
    manifest: &Manifest,
    sidecars: &BTreeMap<String, Sidecar>,
    counts: &CountsByProcess,
) -> CountedLoads {
    let mut out = CountedLoads::default();
    // Executions of regions, by module.
    let mut regions: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for (&process, list) in counts {
        let modules = modules_of(manifest, sidecars, process);
        for &(id, times) in list {
            let mut here = modules.iter().filter(|(_, s)| {
                let first = s.header.id_first;
                (first..first.saturating_add(s.records.len() as u32)).contains(&id)
            });
            let Some(&(module, sidecar)) = here.next() else {
                out.unknown += times;
                continue;
            };
            if here.next().is_some() {
                out.ambiguous += times;
                continue;
            }
            let number = id - sidecar.header.id_first;
            let region = sidecar.records[number as usize].region;
            let of = sidecar.regions.get(region as usize);
            // The region's first record counts its executions.
            if of.is_some_and(|r| r.first_record == number) {
                let executed = regions
                    .entry(module)
                    .or_insert_with(|| vec![0; sidecar.regions.len()]);
                executed[region as usize] += times;
            }
        }
    }
    for (module, executed) in regions {
        let Some(sidecar) = sidecar_of(manifest, sidecars, module) else {
            continue;
        };
        let folded = folded(sidecar);
        for (number, site) in sidecar.sites.iter().enumerate() {
            let times = executed.get(site.region as usize).copied().unwrap_or(0);
            if let Some(more) = folded.get(&(number as u32)) {
                let loads = times.saturating_mul(*more);
                out.loads += loads;
                if loads > 0 {
                    *out.by_site.entry((module, number as u32)).or_default() += loads;
                }
            }
            if times == 0 || site.flags & (SiteFlags::STORE | SiteFlags::UNRECORDED) != 0 {
                continue;
            }
            let number = number as u32;
            let (each, bound) = match SiteKind::from_u8(site.kind) {
                Some(SiteKind::Gather) => {
                    let found = sidecar.gathers.binary_search_by_key(&number, |g| g.site);
                    let lanes = found.map_or(1, |at| sidecar.gathers[at].lanes);
                    (u64::from(lanes), true)
                }
                Some(SiteKind::String | SiteKind::StringUntil) => (1, true),
                Some(SiteKind::Plain | SiteKind::BitString | SiteKind::Xlat) | None => (1, false),
            };
            let loads = times.saturating_mul(each);
            out.loads += loads;
            out.bounds += if bound { loads } else { 0 };
            *out.by_site.entry((module, number)).or_default() += loads;
        }
    }
    out
}

/// Constant loads of earlier blocks whose regions have no record, which a region accounts for. They
/// are counted at the region's first site, as in the rows of other modes.
fn folded(sidecar: &Sidecar) -> BTreeMap<u32, u64> {
    let mut first = vec![None; sidecar.regions.len()];
    let mut own = vec![0; sidecar.regions.len()];
    for (number, site) in sidecar.sites.iter().enumerate() {
        let region = site.region as usize;
        if region < first.len() {
            first[region].get_or_insert(number as u32);
            own[region] += u64::from(site.flags & SiteFlags::IMPLIED != 0);
        }
    }
    let regions = sidecar.regions.iter().zip(first).zip(own);
    regions
        .filter_map(|((region, first), own)| {
            let more = u64::from(region.implied_const).saturating_sub(own);
            Some((first?, more)).filter(|_| more > 0)
        })
        .collect()
}

fn sidecar_of<'s>(
    manifest: &Manifest,
    sidecars: &'s BTreeMap<String, Sidecar>,
    module: u16,
) -> Option<&'s Sidecar> {
    sidecars.get(&manifest.modules.get(usize::from(module))?.sidecar_id)
}

/// The modules of a process, each sidecar once. A forked child that is not named has all modules.
fn modules_of<'s>(
    manifest: &Manifest,
    sidecars: &'s BTreeMap<String, Sidecar>,
    process: u32,
) -> Vec<(u16, &'s Sidecar)> {
    let named = |own: bool| {
        let mut found: BTreeMap<&String, u16> = BTreeMap::new();
        for (number, module) in manifest.modules.iter().enumerate() {
            let is_own = module.loads.iter().any(|l| l.process == process);
            if let Ok(number) = u16::try_from(number)
                && (is_own || !own)
            {
                found.entry(&module.sidecar_id).or_insert(number);
            }
        }
        found
    };
    let mut found = named(true);
    if found.is_empty() {
        found = named(false);
    }
    found
        .into_iter()
        .filter_map(|(id, module)| Some((module, sidecars.get(id)?)))
        .collect()
}

/// Writes the file into a trace folder.
pub(crate) fn write_counted_loads(folder: &Path, loads: &CountedLoads) -> anyhow::Result<()> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("module", DataType::UInt32, false),
        Field::new("site", DataType::UInt32, false),
        Field::new("loads", DataType::UInt64, false),
    ]));
    let rows = &loads.by_site;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.keys().map(|k| u32::from(k.0)).collect::<UInt32Array>()),
        Arc::new(rows.keys().map(|k| k.1).collect::<UInt32Array>()),
        Arc::new(rows.values().copied().collect::<UInt64Array>()),
    ];
    let batch = RecordBatch::try_new(schema.clone(), columns)?;
    small_table::write_small_table(folder, COUNTS, schema, [Ok(batch)])
}
