//! Compares a trace with the loads that the single-step reference saw.
//!
//! This applies to all programs and loads. Every load that instrumented functions executed must be
//! a row, in the right order, with its address and size. The only exceptions are loads that the
//! sidecar marks as implied: then the rows of their region must imply exactly that number.

use crate::events::{EventKind, StepperEvent, WatchedCode};
use crate::rows::RecordedRow;
use anyhow::{Context, Result, bail, ensure};
use mgz_annotations_schema::sidecar::{NO_RECORD, NONE, Sidecar, Site, SiteFlags, SiteKind};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;

/// Numbers of compared loads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Loads in the reference.
    pub loads: u64,
    /// Loads that are rows in the trace.
    pub rows: u64,
    /// Loads that rows imply.
    pub implied: u64,
    /// Loads that are not recorded and for which the sidecar gives a reason (only in the PT
    /// flavour, which cannot spill registers).
    pub unrecorded: u64,
    /// Loads that ran in original code that could not be patched (only if the caller allows it).
    pub lost: u64,
}

impl Summary {
    /// Adds the numbers of another thread.
    pub fn add(&mut self, other: Summary) {
        self.loads += other.loads;
        self.rows += other.rows;
        self.implied += other.implied;
        self.unrecorded += other.unrecorded;
        self.lost += other.lost;
    }
}

/// Watches the originals of the instrumented functions.
pub fn watch_originals(path: &Path, sidecar: &Sidecar) -> WatchedCode {
    let ranges = sidecar
        .functions
        .iter()
        .filter(|f| f.left == NONE)
        .map(|f| (f.start, f.end, false))
        .collect();
    WatchedCode {
        path: path.into(),
        ranges,
        ..WatchedCode::default()
    }
}

/// Watches originals and clones, for the PT flavour.
pub fn watch_clones(path: &Path, original: &Path, sidecar: &Sidecar) -> WatchedCode {
    let mut watch = watch_originals(path, sidecar);
    watch.ranges.extend(
        sidecar
            .functions
            .iter()
            .filter(|f| f.left == NONE)
            .map(|f| (f.clone_start, f.clone_end, true)),
    );
    watch.ranges.sort_unstable();
    watch.copies = sidecar
        .sites
        .iter()
        .filter(|s| s.flags & SiteFlags::STORE == 0)
        .map(|s| (s.clone_ip, s.ip))
        .collect();
    watch.copies.sort_unstable();
    watch.copies.dedup();
    watch.original = Some(original.into());
    watch
}

/// Events by thread.
pub fn by_thread(events: &[StepperEvent]) -> BTreeMap<(u32, u32), Vec<StepperEvent>> {
    let mut threads: BTreeMap<_, Vec<StepperEvent>> = BTreeMap::new();
    for event in events {
        threads
            .entry((event.process, event.thread))
            .or_default()
            .push(*event);
    }
    threads
}

/// Sites by instruction: an instruction with two loads has two.
struct Sites<'a> {
    sidecar: &'a Sidecar,
    at: HashMap<u64, Vec<u32>>,
    turn: HashMap<u64, usize>,
}

impl<'a> Sites<'a> {
    fn new(sidecar: &'a Sidecar) -> Sites<'a> {
        let mut at: HashMap<u64, Vec<u32>> = HashMap::new();
        for (i, site) in sidecar
            .sites
            .iter()
            .enumerate()
            .filter(|(_, s)| s.flags & SiteFlags::STORE == 0)
        {
            at.entry(site.ip).or_default().push(i as u32);
        }
        Sites {
            sidecar,
            at,
            turn: HashMap::new(),
        }
    }

    /// The site of the next load at `ip`.
    fn next(&mut self, ip: u64) -> Result<(u32, &'a Site)> {
        let all = self
            .at
            .get(&ip)
            .with_context(|| format!("the load at {ip:#x} is not in the sidecar"))?;
        let turn = self.turn.entry(ip).or_default();
        let id = all[*turn % all.len()];
        *turn += 1;
        Ok((id, &self.sidecar.sites[id as usize]))
    }
}

fn show(what: &str, out: &mut String, lines: impl Iterator<Item = (u64, u64, u32)>) {
    let _ = writeln!(out, "  {what}");
    for (ip, address, size) in lines {
        let _ = writeln!(out, "    ip {ip:#x}  address {address:#x}  size {size}");
    }
}

/// Implied loads of the current pass that have no row yet. A fault may end a pass before its first
/// row; its implied loads are then counted with the next row of any region
/// (`annotations-schema/src/expand/mod.rs`, "Rules").
#[derive(Default)]
struct Waiting {
    region: u32,
    last_ip: u64,
    count: i64,
    /// Implied loads of passes that ended without a row.
    left: Vec<(u32, i64)>,
    /// The pass has a row, so its further implied loads count with that.
    placed: bool,
}

impl Waiting {
    /// Handles the next load of the reference.
    fn load(&mut self, site: &Site) {
        if site.region != self.region || site.ip <= self.last_ip {
            if self.count > 0 && !self.placed {
                self.left.push((self.region, self.count));
            }
            (self.region, self.count, self.placed) = (site.region, 0, false);
        }
        self.last_ip = site.ip;
    }

    /// The load is implied.
    fn implied(&mut self) {
        self.count += 1;
    }

    /// The load is a row. Adds the waiting implied loads to its region.
    fn row(&mut self, expected: &mut HashMap<u32, i64>) {
        self.placed = true;
        for (region, count) in self.left.drain(..) {
            *expected.entry(region).or_default() -= count;
            *expected.entry(self.region).or_default() += count;
        }
    }
}

/// Compares one thread. Rows are those of the module under test. With `lossy`, loads may have been
/// executed in original code that could not be patched; the loads in the trace must still be in the
/// reference, in order.
pub fn thread(
    sidecar: &Sidecar,
    reference: &[StepperEvent],
    rows: &[RecordedRow],
    lossy: bool,
) -> Result<Summary> {
    let mut sites = Sites::new(sidecar);
    let mut expected: HashMap<u32, i64> = HashMap::new();
    let mut waiting = Waiting {
        region: NONE,
        ..Waiting::default()
    };
    let mut summary = Summary::default();
    let mut next = rows.iter().filter(|r| !r.store).enumerate().peekable();
    for (i, event) in reference.iter().enumerate() {
        ensure!(event.kind == EventKind::Original, "event {i} is {event:?}");
        summary.loads += 1;
        let (id, site) = sites.next(event.ip)?;
        waiting.load(site);
        if site.flags & SiteFlags::IMPLIED != 0 {
            summary.implied += 1;
            waiting.implied();
            *expected.entry(site.region).or_default() += 1;
            continue;
        }
        ensure!(
            site.flags & SiteFlags::UNRECORDED == 0,
            "the load at {:#x} is not recorded (reason {})",
            event.ip,
            site.reason
        );
        let fits = next.next_if(|(_, r)| {
            (r.ip, r.address, r.size, r.site) == (event.ip, event.value, event.size, id)
        });
        if fits.is_none() && lossy {
            summary.lost += 1;
            continue;
        }
        let Some((_, row)) = fits else {
            let mut text = format!(
                "load {i} of {} (site {id}, kind {}, class {}) is not the next row",
                reference.len(),
                site.kind,
                site.class
            );
            let from = i.saturating_sub(3);
            text.push('\n');
            show(
                "reference",
                &mut text,
                reference[from..]
                    .iter()
                    .take(8)
                    .map(|e| (e.ip, e.value, e.size)),
            );
            let at = next.peek().map_or(rows.len(), |(n, _)| *n);
            show(
                &format!("rows from {} (the next is {at})", at.saturating_sub(3)),
                &mut text,
                rows[at.saturating_sub(3)..]
                    .iter()
                    .take(8)
                    .map(|r| (r.ip, r.address, r.size)),
            );
            bail!(text);
        };
        ensure!(
            row.class == site.class,
            "class of site {id}: {} in the row, {} in the sidecar",
            row.class,
            site.class
        );
        summary.rows += 1;
        waiting.row(&mut expected);
        if row.implied_const > 0 {
            *expected.entry(site.region).or_default() -= i64::from(row.implied_const);
        }
    }
    if let Some((i, row)) = next.next() {
        bail!(
            "row {i} of {} was never executed, nor were those after it: {row:x?}",
            rows.len()
        );
    }
    // A region's implied loads may be counted with a later region. The test cannot know which, but
    // it is in the same function.
    let mut of_function: HashMap<u32, i64> = HashMap::new();
    for (region, difference) in expected {
        *of_function
            .entry(sidecar.regions[region as usize].function)
            .or_default() += difference;
    }
    let mut wrong: Vec<_> = of_function
        .into_iter()
        .filter(|&(_, difference)| difference != 0 && !lossy)
        .collect();
    wrong.sort_unstable();
    let said: Vec<_> = wrong
        .iter()
        .map(|&(f, difference)| {
            format!(
                "{difference} in function {f} at {:#x}",
                sidecar.functions[f as usize].start
            )
        })
        .collect();
    ensure!(
        wrong.is_empty(),
        "executed minus implied Constant loads is {}",
        said.join(", ")
    );
    Ok(summary)
}

/// Payloads of the current pass through a region.
#[derive(Default)]
struct Pass {
    region: u32,
    payloads: HashMap<u32, Vec<u64>>,
    last: Option<(u32, u32)>,
    /// Clone address of the instruction that faulted in it.
    fault: u64,
}

/// Passes of the PT flavour: the current one and those that a fault interrupted.
#[derive(Default)]
struct Passes {
    now: Pass,
    interrupted: Vec<Pass>,
    /// Number of passes by region. Passes that were given up before a site was executed are counted
    /// by that site.
    counts: HashMap<u32, i64>,
    missed: HashMap<u32, i64>,
}

impl Passes {
    fn fault(&mut self, ip: u64) {
        let pass = std::mem::replace(
            &mut self.now,
            Pass {
                region: NONE,
                ..Pass::default()
            },
        );
        self.interrupted.push(Pass { fault: ip, ..pass });
    }

    /// Resumes the pass that the preceding fault interrupted, if that pass is of this region and
    /// `fits`. The passes above it were left by a jump.
    fn resume(&mut self, sidecar: &Sidecar, region: u32, fits: impl Fn(&Pass) -> bool) {
        if self.now.region == region {
            return;
        }
        if let Some(i) = self
            .interrupted
            .iter()
            .rposition(|p| p.region == region && fits(p))
        {
            for left in self.interrupted.split_off(i + 1) {
                self.give_up(sidecar, &left);
            }
            self.now = self.interrupted.pop().unwrap_or_default();
        }
    }

    fn give_up(&mut self, sidecar: &Sidecar, pass: &Pass) {
        let Some(region) = sidecar.regions.get(pass.region as usize) else {
            return;
        };
        let sites = region.first_site..region.first_site + region.site_count;
        for site in sites.filter(|&s| sidecar.sites[s as usize].clone_ip >= pass.fault) {
            *self.missed.entry(site).or_default() += 1;
        }
    }

    /// Handles a `ptwrite` of this region. `place`: record and part.
    fn ptwrite(&mut self, sidecar: &Sidecar, region: u32, place: (u32, u32), value: u64) {
        let later = |p: &Pass| p.last.is_some_and(|l| place > l);
        self.resume(sidecar, region, later);
        if region != self.now.region || self.now.last.is_some_and(|l| place <= l) {
            self.now = Pass {
                region,
                ..Pass::default()
            };
            *self.counts.entry(region).or_default() += 1;
        }
        self.now.last = Some(place);
        self.now.payloads.entry(place.0).or_default().push(value);
    }
}

fn signed(site: &Site, raw: u64) -> i64 {
    match site.size {
        2 => i64::from(raw as i16),
        4 => i64::from(raw as i32),
        _ => raw as i64,
    }
}

/// The rows of a site, by the formulas in the sidecar's documentation. `None` while a payload is
/// missing.
fn expand(sidecar: &Sidecar, id: u32, pass: &Pass, bias: u64) -> Option<Vec<(u64, u32)>> {
    let site = &sidecar.sites[id as usize];
    let payload = |n: u8| {
        if n == NO_RECORD {
            return Some(0);
        }
        let record = sidecar.regions[site.region as usize].first_record + u32::from(n);
        pass.payloads.get(&record).map(|p| p[0])
    };
    let mut disp = site.disp as u64;
    if site.flags & SiteFlags::STATIC != 0 {
        disp = disp.wrapping_add(bias);
    }
    let a = payload(site.a)?;
    let cut = |v: u64| {
        if site.flags & SiteFlags::ADDR32 != 0 {
            v & 0xffff_ffff
        } else {
            v
        }
    };
    Some(match SiteKind::from_u8(site.kind)? {
        SiteKind::Plain => {
            let b = payload(site.b)?.wrapping_mul(u64::from(site.scale));
            vec![(cut(a.wrapping_add(b).wrapping_add(disp)), site.size)]
        }
        kind @ (SiteKind::String | SiteKind::StringUntil) => {
            let mut count = if site.b == NO_RECORD {
                1
            } else {
                payload(site.b)?
            };
            if kind == SiteKind::StringUntil {
                count = count.wrapping_sub(payload(site.b + 1)?);
            }
            let row = (
                cut(a.wrapping_add(disp)),
                (count * u64::from(site.size)) as u32,
            );
            if count == 0 { Vec::new() } else { vec![row] }
        }
        SiteKind::BitString => {
            let word = signed(site, payload(site.b)?).div_euclid(i64::from(site.size) * 8);
            let address = a
                .wrapping_add(disp)
                .wrapping_add((word * i64::from(site.size)) as u64);
            vec![(address, site.size)]
        }
        SiteKind::Xlat => vec![(
            a.wrapping_add(disp).wrapping_add(payload(site.b)? & 0xff),
            1,
        )],
        SiteKind::Gather => {
            let g = sidecar.gathers.iter().find(|g| g.site == id)?;
            let record = sidecar.regions[site.region as usize].first_record + u32::from(site.a);
            let words = pass.payloads.get(&record)?;
            if words.len() < sidecar.records[record as usize].slots as usize {
                return None;
            }
            let raw: Vec<u8> = words[1..].iter().flat_map(|w| w.to_le_bytes()).collect();
            let (index, mask) = raw.split_at(g.index_bytes as usize);
            let wide = site.flags & SiteFlags::INDEX64 != 0;
            let active = |i: usize| match g.mask_bytes as usize {
                0 => mask[i / 8] >> (i % 8) & 1 == 1,
                n => mask[(i + 1) * n - 1] & 0x80 != 0,
            };
            let lane = |i: usize| {
                if wide {
                    i64::from_le_bytes(index[i * 8..][..8].try_into().expect("eight bytes"))
                } else {
                    i64::from(i32::from_le_bytes(
                        index[i * 4..][..4].try_into().expect("four bytes"),
                    ))
                }
            };
            let start = a.wrapping_add(disp);
            let address =
                |i: usize| start.wrapping_add((lane(i) as u64).wrapping_mul(u64::from(site.scale)));
            (0..g.lanes as usize)
                .filter(|&i| active(i))
                .map(|i| (address(i), site.size))
                .collect()
        }
    })
}

/// The expected content of a PT-flavoured trace for one stepped thread: `(ip, address, size)` of
/// each load that has a row, and the number of implied loads.
pub fn recorded(sidecar: &Sidecar, events: &[StepperEvent]) -> Result<(Vec<(u64, u64, u32)>, u64)> {
    let mut sites = Sites::new(sidecar);
    let (mut rows, mut implied) = (Vec::new(), 0);
    for event in events.iter().filter(|e| e.kind == EventKind::Clone) {
        let (_, site) = sites.next(event.ip)?;
        match site.flags & (SiteFlags::IMPLIED | SiteFlags::UNRECORDED) {
            0 => rows.push((event.ip, event.value, event.size)),
            SiteFlags::IMPLIED => implied += 1,
            _ => {}
        }
    }
    Ok((rows, implied))
}

/// Checks one thread of a PT-flavoured program: the payloads of its `ptwrite`s must give the loads
/// that its clones executed.
pub fn ptwrites(
    sidecar: &Sidecar,
    events: &[StepperEvent],
    bias: u64,
    lossy: bool,
) -> Result<Summary> {
    let mut sites = Sites::new(sidecar);
    let mut passes = Passes {
        now: Pass {
            region: NONE,
            ..Pass::default()
        },
        ..Passes::default()
    };
    let mut seen = HashMap::<u32, i64>::new();
    let mut summary = Summary::default();
    // Outstanding rows of a gather, and a repe/repne load that waits for its count.
    let mut coming: Vec<(u64, u32)> = Vec::new();
    let mut waiting: Vec<(u32, StepperEvent)> = Vec::new();
    for (i, event) in events.iter().enumerate() {
        match event.kind {
            EventKind::Module => continue,
            EventKind::Fault => passes.fault(event.ip),
            EventKind::Original if lossy => {
                summary.loads += 1;
                summary.lost += 1;
            }
            EventKind::Original => bail!(
                "event {i}: a load in the original body of an instrumented function: {event:x?}"
            ),
            EventKind::Unlisted => {
                bail!("event {i}: a load in a clone that no site describes: {event:x?}")
            }
            EventKind::PtWrite => {
                let at = sidecar
                    .ptwrites
                    .binary_search_by_key(&event.ip, |p| p.ip)
                    .map_err(|_| {
                        anyhow::anyhow!(
                            "a ptwrite at {:#x} that the sidecar does not have",
                            event.ip
                        )
                    })?;
                let known = sidecar.ptwrites[at];
                let region = sidecar.records[known.record as usize].region;
                passes.ptwrite(sidecar, region, (known.record, known.part), event.value);
                for (id, load) in std::mem::take(&mut waiting) {
                    match expand(sidecar, id, &passes.now, bias) {
                        Some(rows) => ensure!(
                            rows == [(load.value, load.size)],
                            "site {id}: expanded {rows:x?}, executed {load:x?}"
                        ),
                        None => waiting.push((id, load)),
                    }
                }
            }
            EventKind::Clone => {
                summary.loads += 1;
                if !coming.is_empty() {
                    let row = coming.remove(0);
                    ensure!(
                        row == (event.value, event.size),
                        "event {i}: lane {row:x?} expected, executed {event:x?}"
                    );
                    summary.rows += 1;
                    continue;
                }
                let (id, site) = sites.next(event.ip)?;
                *seen.entry(id).or_default() += 1;
                passes.resume(sidecar, site.region, |_| true);
                if site.flags & SiteFlags::IMPLIED != 0 {
                    summary.implied += 1;
                    continue;
                }
                if site.flags & SiteFlags::UNRECORDED != 0 {
                    summary.unrecorded += 1;
                    continue;
                }
                summary.rows += 1;
                let now = &passes.now;
                ensure!(
                    site.region == now.region || site.a == NO_RECORD,
                    "event {i}: {event:x?} of region {} runs in region {}",
                    site.region,
                    now.region
                );
                match expand(sidecar, id, now, bias) {
                    None if site.kind == SiteKind::StringUntil as u8 => waiting.push((id, *event)),
                    None => bail!("event {i}: a payload of site {id} is missing: {event:x?}"),
                    Some(mut rows) => {
                        ensure!(
                            !rows.is_empty() && rows[0] == (event.value, event.size),
                            "event {i}, site {id} ({site:x?}): expanded {rows:x?}, executed {event:x?}"
                        );
                        coming = rows.split_off(1);
                    }
                }
            }
        }
    }
    ensure!(
        coming.is_empty() && waiting.is_empty(),
        "loads that were recorded did not run: {coming:x?} {waiting:x?}"
    );
    for left in std::mem::take(&mut passes.interrupted) {
        passes.give_up(sidecar, &left);
    }
    for (region, count) in passes.counts {
        let r = &sidecar.regions[region as usize];
        for id in r.first_site..r.first_site + r.site_count {
            let site = &sidecar.sites[id as usize];
            // Strings with a count of zero and gathers without active lanes execute no load.
            let certain = site.kind == SiteKind::Plain as u8
                && site.flags & (SiteFlags::STORE | SiteFlags::UNRECORDED) == 0;
            let runs =
                seen.get(&id).copied().unwrap_or(0) + passes.missed.get(&id).copied().unwrap_or(0);
            ensure!(
                !certain || runs == count,
                "region {region} was recorded {count} times, its load at {:#x} ran {runs} times",
                site.ip
            );
        }
    }
    Ok(summary)
}
