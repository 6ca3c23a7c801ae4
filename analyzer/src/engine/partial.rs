//! Partial results: the result of the pass over a trace, in a file, to be merged with others later.
//!
//! Merging is associative and, up to the order of equals in tables, commutative. So traces of many
//! processes or machines can be analysed separately and merged in any grouping. Code is matched by
//! module, name, line and inline chain; address spaces of different partial results are different.
//! The zoom trees need the rows and are not included.
//!
//! The file: `MGZPART7`, then zstd of a JSON header (its length as u64 first) and columns of u64,
//! each with its length before it.

use crate::data::code_map::{CodeMap, FunctionName, LineName, LinePiece, LoopName};
use crate::data::counts::LogHistogram;
use crate::data::histogram::Histogram;
use crate::data::reuse_counts::GroupReuse;
use crate::data::samples::{Beginning, NO_LOAD, SampleInfo, Spot};
use crate::engine::{BucketOutcome, Census, Outcome};
use crate::input::weights::Weights;
use crate::stages::fetches::Fetched;
use crate::stages::footprint::{Entry, FootprintSet, GroupCount, Key, Maps};
use crate::stages::incidence::{ALIKE, Incidence, Mark};
use crate::stages::reuse::{REPLICATES, RepSums, ReuseTotals};
use crate::stages::windows::{Levels, WindowEngine};
use mgz_annotations_schema::manifest::Manifest;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"MGZPART7";
/// Columns longer than this are damage.
const MOST: u64 = 1 << 34;

/// Why a partial result cannot be written, read or merged.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {cause}")]
pub struct PartialError {
    /// The file.
    pub path: String,
    /// The error and the remedy.
    pub cause: String,
}

/// A partial result in memory.
pub struct Partial {
    /// The manifest of the trace; of merged ones the sums.
    pub manifest: Manifest,
    /// Names.
    pub code: CodeMap,
    /// Counts.
    pub outcome: Outcome,
    /// Bytes of a block of reuse distance.
    pub block: u64,
    /// Sentences for the user.
    pub warnings: Vec<String>,
}

/// The fields of a [`LoopName`], in their order.
type LoopRecord = (u32, u64, Option<u64>, u32, String, u32, Vec<String>);

#[derive(Serialize, Deserialize)]
struct Header {
    manifest: Manifest,
    functions: Vec<(String, String)>,
    lines: Vec<(String, String, String, u32)>,
    loops: Vec<LoopRecord>,
    pieces: Vec<(u32, u32, Vec<u32>, Vec<String>)>,
    block: u64,
    warnings: Vec<String>,
    damage: Vec<String>,
}

/// Writes columns.
struct Out<W>(W);

impl<W: Write> Out<W> {
    fn column(&mut self, values: impl IntoIterator<Item = u64>) -> std::io::Result<()> {
        let values: Vec<u8> = values.into_iter().flat_map(u64::to_le_bytes).collect();
        self.0.write_all(&(values.len() as u64 / 8).to_le_bytes())?;
        self.0.write_all(&values)
    }
}

/// Reads columns.
struct In<R>(R);

impl<R: Read> In<R> {
    fn word(&mut self) -> Result<u64, String> {
        let mut bytes = [0; 8];
        self.0
            .read_exact(&mut bytes)
            .map_err(|e| format!("it ends too early ({e})"))?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn bytes(&mut self, length: u64) -> Result<Vec<u8>, String> {
        if length > MOST {
            return Err("a length in it is absurd".into());
        }
        let mut bytes = Vec::new();
        self.0
            .by_ref()
            .take(length)
            .read_to_end(&mut bytes)
            .map_err(|e| e.to_string())?;
        if (bytes.len() as u64) < length {
            return Err("it ends too early".into());
        }
        Ok(bytes)
    }

    fn column(&mut self) -> Result<Vec<u64>, String> {
        let length = self
            .word()?
            .checked_mul(8)
            .ok_or("a length in it is absurd")?;
        let bytes = self.bytes(length)?;
        Ok(bytes
            .chunks_exact(8)
            .map(|b| u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
            .collect())
    }

    /// A column whose length is a multiple of `N`, in groups.
    fn groups<const N: usize>(&mut self) -> Result<Vec<[u64; N]>, String> {
        let column = self.column()?;
        if !column.len().is_multiple_of(N) {
            return Err("a column in it has the wrong length".into());
        }
        Ok(column
            .chunks_exact(N)
            .map(|c| std::array::from_fn(|i| c[i]))
            .collect())
    }
}

impl Partial {
    /// Writes it; the file is replaced only by a whole one.
    pub fn write(&self, path: &Path) -> Result<(), PartialError> {
        let fail = |cause: String| PartialError {
            path: path.display().to_string(),
            cause,
        };
        let temporary = path.with_extension(format!("tmp{}", std::process::id()));
        let written = self
            .write_to(&temporary)
            .and_then(|()| std::fs::rename(&temporary, path));
        if written.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        written.map_err(|e| {
            fail(format!(
                "cannot be written ({e}); choose another place or make room"
            ))
        })
    }

    fn write_to(&self, path: &Path) -> std::io::Result<()> {
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        file.write_all(MAGIC)?;
        let mut out = Out(zstd::Encoder::new(file, 1)?);
        let header = Header {
            manifest: self.manifest.clone(),
            functions: self
                .code
                .functions
                .iter()
                .map(|f| (f.function.clone(), f.module.clone()))
                .collect(),
            lines: self
                .code
                .lines
                .iter()
                .map(|l| (l.function.clone(), l.module.clone(), l.file.clone(), l.line))
                .collect(),
            loops: self
                .code
                .loops
                .iter()
                .map(|l| {
                    (
                        l.function,
                        l.header,
                        l.outer,
                        l.depth,
                        l.file.clone(),
                        l.line,
                        l.chain.clone(),
                    )
                })
                .collect(),
            pieces: self
                .code
                .pieces
                .iter()
                .map(|p| (p.function, p.line, p.loops.clone(), p.chain.clone()))
                .collect(),
            block: self.block,
            warnings: self.warnings.clone(),
            damage: self.outcome.damage.clone(),
        };
        let header = serde_json::to_vec(&header)?;
        out.0.write_all(&(header.len() as u64).to_le_bytes())?;
        out.0.write_all(&header)?;
        let o = &self.outcome;
        let bucket = &o.buckets[0];
        let reuse = &bucket.reuse;
        out.column(o.spaces.iter().map(|&s| s.into()))?;
        out.column(bucket.footprint.entries().into_iter().flat_map(|e| {
            let (key, maps) = (e.key(), e.maps());
            [
                key.space.into(),
                key.line,
                key.group.into(),
                maps.seen,
                maps.twice,
                maps.bytes,
            ]
        }))?;
        out.column(bucket.counts.iter().flat_map(|c| [c.rows, c.implied]))?;
        out.column(
            reuse
                .groups
                .iter()
                .flat_map(|g| [g.reuses, g.firsts, g.distance, g.distance_max, g.interval]),
        )?;
        let replicates = reuse
            .replicates
            .iter()
            .enumerate()
            .filter_map(|(group, r)| Some((group as u64, r.as_ref()?)));
        out.column(replicates.flat_map(|(group, r)| {
            std::iter::once(group).chain(
                r.iter()
                    .flat_map(|s| [s.touches, s.reuses, s.distance, s.samples, s.weighted]),
            )
        }))?;
        out.column(reuse.samples)?;
        let distances = reuse.distances.iter().enumerate().flat_map(|(group, d)| {
            d.counts()
                .iter()
                .enumerate()
                .map(move |(bin, &n)| [group as u64, bin as u64, n])
        });
        out.column(distances.filter(|d| d[2] > 0).flatten())?;
        out.column(reuse.intervals.counts().iter().copied())?;
        out.column(reuse.levels.totals().iter().flatten().copied())?;
        for levels in o.windows.levels() {
            out.column(levels.totals().iter().flatten().copied())?;
        }
        out.column(o.fetches.iter().flat_map(|f| [f.lines, f.bytes]))?;
        out.column([u64::from(o.weights.is_some())])?;
        out.column(o.weights.iter().flat_map(|w| w.by_sample().iter().copied()))?;
        // Unknown values are stored as NaN.
        let executed = o.weights.iter().flat_map(|w| w.executed_by_sample());
        out.column(executed.flat_map(|e| {
            let (loads, error) = e.unwrap_or((f64::NAN, f64::NAN));
            [loads.to_bits(), error.to_bits()]
        }))?;
        out.column(
            o.weights
                .iter()
                .flat_map(|w| w.times_by_sample().iter().copied()),
        )?;
        let pieces = self.code.site_pieces();
        let strides = o.strides.iter().filter_map(|&(site, bin, count)| {
            Some([u64::from(*pieces.get(site as usize)?), bin.into(), count])
        });
        out.column(strides.flatten())?;
        out.column([u64::from(o.incidence.gathered())])?;
        let marks = o.incidence.spaces().iter().enumerate();
        out.column(marks.flat_map(|(space, marks)| {
            marks
                .iter()
                .flat_map(move |m| [space as u64, m.address, m.group.into(), m.sample.into()])
        }))?;
        out.column(o.samples.iter().flat_map(|s| {
            [
                s.process.into(),
                s.thread.into(),
                s.sample.into(),
                s.loads,
                s.begin.map_or(NO_LOAD, |b| b.first.group).into(),
                s.begin.map_or(NO_LOAD, |b| b.before.group).into(),
                s.first_time,
                s.last_time,
            ]
        }))?;
        let c = &o.census;
        out.column([
            c.loads,
            c.stores,
            c.samples,
            c.sample_min,
            c.sample_max,
            c.threads,
            c.processes,
            c.out_of_order,
            c.unknown_site,
            c.unknown_module,
            c.unknown_class,
            c.unread,
        ])?;
        out.0
            .finish()?
            .into_inner()
            .map_err(|e| e.into_error())?
            .sync_data()
    }

    /// True if a file begins like a partial result.
    pub fn is_one(path: &Path) -> bool {
        let mut magic = [0; 8];
        std::fs::File::open(path)
            .and_then(|mut f| f.read_exact(&mut magic))
            .is_ok()
            && magic == *MAGIC
    }

    /// Reads one.
    pub fn read(path: &Path) -> Result<Partial, PartialError> {
        let fail = |cause: String| PartialError {
            path: path.display().to_string(),
            cause: format!("{cause}; give a file that mgz-analyze --partial wrote"),
        };
        let mut file =
            std::io::BufReader::new(std::fs::File::open(path).map_err(|e| fail(e.to_string()))?);
        let mut magic = [0; 8];
        file.read_exact(&mut magic)
            .map_err(|_| fail("not a partial result (too short)".into()))?;
        if magic != *MAGIC {
            return Err(fail("not a partial result of this version".into()));
        }
        Partial::parse(file).map_err(|cause| fail(format!("damaged partial result: {cause}")))
    }

    fn parse(file: impl std::io::BufRead) -> Result<Partial, String> {
        let mut input = In(zstd::Decoder::with_buffer(file).map_err(|e| e.to_string())?);
        let length = input.word()?;
        let header: Header = serde_json::from_slice(&input.bytes(length)?)
            .map_err(|e| format!("its header is no valid JSON ({e})"))?;
        let functions: Vec<FunctionName> = header
            .functions
            .into_iter()
            .map(|(function, module)| FunctionName { function, module })
            .collect();
        let lines: Vec<LineName> = header
            .lines
            .into_iter()
            .map(|(function, module, file, line)| LineName {
                function,
                module,
                file,
                line,
            })
            .collect();
        let pieces: Vec<LinePiece> = header
            .pieces
            .into_iter()
            .map(|(function, line, loops, chain)| LinePiece {
                function,
                line,
                loops,
                chain,
            })
            .collect();
        let loops =
            header
                .loops
                .into_iter()
                .map(
                    |(function, header, outer, depth, file, line, chain)| LoopName {
                        function,
                        header,
                        outer,
                        depth,
                        file,
                        line,
                        chain,
                    },
                );
        let loops: Vec<LoopName> = loops.collect();
        let named = |p: &LinePiece| {
            (p.function as usize) < functions.len()
                && (p.line as usize) < lines.len()
                && p.loops.iter().all(|&l| (l as usize) < loops.len())
        };
        if !pieces.iter().all(named) || loops.iter().any(|l| l.function as usize >= functions.len())
        {
            return Err("a piece of code has no name".into());
        }
        let groups = pieces.len() as u64 * 4;
        let small = |value: u64, bound: u64| {
            if value < bound {
                Ok(value as u32)
            } else {
                Err(format!("a number in it is too large ({value})"))
            }
        };
        let spaces: Vec<u32> = input.column()?.into_iter().map(|s| s as u32).collect();
        let mut footprint = FootprintSet::default();
        for [space, line, group, seen, twice, bytes] in input.groups()? {
            footprint.add(Entry::new(
                Key {
                    space: small(space, spaces.len() as u64)?,
                    line,
                    group: small(group, groups)?,
                },
                Maps { seen, twice, bytes },
            ));
        }
        let bound = |n: usize| {
            if n as u64 <= groups {
                Ok(())
            } else {
                Err("it counts code that it does not name".to_string())
            }
        };
        let counts: Vec<GroupCount> = input
            .groups()?
            .into_iter()
            .map(|[rows, implied]| GroupCount { rows, implied })
            .collect();
        bound(counts.len())?;
        let mut reuse = ReuseTotals::new(None);
        let reuses = input.groups()?;
        bound(reuses.len())?;
        reuse.reserve(groups as usize);
        for (group, [reuses, firsts, distance, distance_max, interval]) in
            reuses.into_iter().enumerate()
        {
            reuse.groups[group] = GroupReuse {
                reuses,
                firsts,
                distance,
                distance_max,
                interval,
            };
        }
        const ROW: usize = 1 + 5 * REPLICATES;
        for row in input.groups::<ROW>()? {
            let sums = std::array::from_fn(|r| {
                let at = |k: usize| row[1 + 5 * r + k];
                RepSums {
                    touches: at(0),
                    reuses: at(1),
                    distance: at(2),
                    samples: at(3),
                    weighted: at(4),
                }
            });
            reuse.replicates[small(row[0], groups)? as usize] = Some(Box::new(sums));
        }
        reuse.samples = input
            .column()?
            .try_into()
            .map_err(|_| "the replicates have the wrong number")?;
        let mut bins: HashMap<u32, Vec<u64>> = HashMap::new();
        for [group, bin, count] in input.groups()? {
            let counts = bins.entry(small(group, groups)?).or_default();
            let bin = small(bin, 1024)? as usize;
            if counts.len() <= bin {
                counts.resize(bin + 1, 0);
            }
            counts[bin] = count;
        }
        bins.into_iter().for_each(|(group, counts)| {
            reuse.distances[group as usize] = Histogram::from_counts(counts)
        });
        reuse.intervals = LogHistogram::from_counts(&input.column()?);
        reuse.levels = Levels::from_totals(input.groups()?);
        let windows = WindowEngine::from_levels(&[
            Levels::from_totals(input.groups()?),
            Levels::from_totals(input.groups()?),
        ]);
        let fetches = input.groups()?.into_iter();
        let fetches: Vec<_> = fetches
            .map(|[lines, bytes]| Fetched { lines, bytes })
            .collect();
        if fetches.len() as u64 > groups {
            return Err("the fetches have the wrong length".into());
        }
        let weighted = input.column()? == [1];
        let by_sample = input.column()?;
        let executed = input.groups()?.into_iter().map(|[loads, error]| {
            let (loads, error) = (f64::from_bits(loads), f64::from_bits(error));
            (loads.is_finite() && error.is_finite()).then_some((loads, error))
        });
        let executed: Vec<_> = executed.collect();
        let times = input.column()?;
        if executed.len() != by_sample.len() || times.len() != by_sample.len() {
            return Err("the weights have the wrong length".into());
        }
        let weights = weighted.then(|| Arc::new(Weights::from_parts(by_sample, executed, times)));
        let mut strides = Vec::new();
        for [piece, bin, count] in input.groups()? {
            strides.push((small(piece, pieces.len() as u64)?, small(bin, 2048)?, count));
        }
        let [gathered]: [u64; 1] = input
            .column()?
            .try_into()
            .map_err(|_| "the marks have the wrong level")?;
        let mut marks: Vec<Vec<Mark>> = vec![Vec::new(); spaces.len()];
        for [space, address, group, sample] in input.groups()? {
            let space = small(space, spaces.len() as u64)? as usize;
            marks[space].push(Mark {
                address,
                group: small(group, groups)?,
                sample: small(sample, 1 << 32)?,
            });
        }
        let mut samples = Vec::new();
        for [
            process,
            thread,
            sample,
            loads,
            first,
            before,
            first_time,
            last_time,
        ] in input.groups()?
        {
            // The place in memory is known only while rows are read.
            let spot = |group: u64| -> Result<Spot, String> {
                Ok(Spot {
                    group: if group == u64::from(NO_LOAD) {
                        NO_LOAD
                    } else {
                        small(group, groups)?
                    },
                    address: 0,
                })
            };
            let begin = Beginning {
                first: spot(first)?,
                before: spot(before)?,
            };
            samples.push(SampleInfo {
                process: process as u32,
                thread: thread as u32,
                sample: sample as u32,
                loads,
                begin: (begin.first.group != NO_LOAD).then_some(begin),
                first_time,
                last_time,
                parts: Vec::new(),
            });
        }
        let c: [u64; 12] = input
            .column()?
            .try_into()
            .map_err(|_| "the census has the wrong length")?;
        let [
            loads,
            stores,
            sample_count,
            sample_min,
            sample_max,
            threads,
            processes,
            out_of_order,
            unknown_site,
            unknown_module,
            unknown_class,
            unread,
        ] = c;
        let census = Census {
            loads,
            stores,
            samples: sample_count,
            sample_min,
            sample_max,
            threads,
            processes,
            out_of_order,
            unknown_site,
            unknown_module,
            unknown_class,
            unread,
        };
        let outcome = Outcome {
            parts: Vec::new(),
            buckets: vec![BucketOutcome {
                footprint,
                counts,
                reuse,
            }],
            samples,
            windows,
            strides,
            fetches,
            // Instructions are not told apart here.
            far_steps: Vec::new(),
            incidence: Incidence::from_parts(marks, gathered.min(255) as u32),
            // They are not stored: partial results predict no misses.
            lines: Default::default(),
            census,
            weights,
            pairs: None,
            spaces,
            damage: header.damage,
            spilled: Some(0),
        };
        Ok(Partial {
            manifest: header.manifest,
            code: CodeMap::from_parts(functions, lines, loops, pieces),
            outcome,
            block: header.block,
            warnings: header.warnings,
        })
    }

    /// Merges another one into it.
    pub fn merge(&mut self, other: Partial) -> Result<(), String> {
        if self.block != other.block {
            return Err(format!(
                "it was made with --block {}, the ones before with {}; make it again with the same",
                other.block, self.block
            ));
        }
        if self.manifest.mode != other.manifest.mode {
            return Err(format!(
                "it is of a trace of mode {}, the ones before of mode {}; merge traces of one mode",
                other.manifest.mode, self.manifest.mode
            ));
        }
        let pieces = self.code.adopt(&other.code);
        let group = |g: u32| pieces[g as usize / 4] * 4 + g % 4;
        let first_space = self.outcome.spaces.len() as u32;
        let first_sample = self
            .outcome
            .samples
            .iter()
            .map(|s| s.sample + 1)
            .max()
            .unwrap_or(0)
            .max(self.outcome.incidence.samples_end());
        // The number of a sample decides if its marks are kept, even for samples that are still to
        // come.
        let most = other
            .outcome
            .samples
            .iter()
            .map(|s| s.sample)
            .max()
            .unwrap_or(0)
            .max(other.outcome.incidence.samples_end());
        let first_sample = first_sample
            .checked_next_multiple_of(ALIKE)
            .filter(|first| first.checked_add(most).is_some());
        let first_sample = first_sample
            .ok_or("there are more samples than numbers for them; merge fewer partial results")?;
        let (mine, theirs) = (&mut self.outcome, other.outcome);
        let Some(their_bucket) = theirs.buckets.into_iter().next() else {
            return Ok(());
        };
        let bucket = &mut mine.buckets[0];
        for entry in their_bucket.footprint.entries() {
            let key = entry.key();
            bucket.footprint.add(Entry::new(
                Key {
                    space: key.space + first_space,
                    line: key.line,
                    group: group(key.group),
                },
                *entry.maps(),
            ));
        }
        for (at, count) in their_bucket.counts.iter().enumerate() {
            let at = group(at as u32) as usize;
            if bucket.counts.len() <= at {
                bucket.counts.resize(at + 1, GroupCount::default());
            }
            bucket.counts[at].rows += count.rows;
            bucket.counts[at].implied += count.implied;
        }
        let mut renumbered = ReuseTotals::new(None);
        let their_reuse = their_bucket.reuse;
        renumbered.reserve(self.code.pieces.len() * 4);
        for at in 0..their_reuse.groups.len() {
            let to = group(at as u32) as usize;
            renumbered.groups[to].merge(&their_reuse.groups[at]);
            renumbered.distances[to].merge(&their_reuse.distances[at]);
            if let Some(sums) = &their_reuse.replicates[at] {
                let into = renumbered.replicates[to].get_or_insert_default();
                into.iter_mut()
                    .zip(sums.iter())
                    .for_each(|(a, b)| a.merge(b));
            }
        }
        (renumbered.samples, renumbered.intervals, renumbered.levels) = (
            their_reuse.samples,
            their_reuse.intervals,
            their_reuse.levels,
        );
        bucket.reuse.merge(renumbered);
        for (at, &fetched) in theirs.fetches.iter().enumerate() {
            let at = group(at as u32) as usize;
            if mine.fetches.len() <= at {
                mine.fetches.resize(at + 1, Fetched::default());
            }
            mine.fetches[at].merge(fetched);
        }
        mine.windows.merge(&theirs.windows);
        // The sum is unknown if one of them is unknown.
        mine.weights = match (mine.weights.take(), theirs.weights) {
            (weights, _) if theirs.samples.is_empty() => weights,
            (weights, Some(theirs)) if weights.is_some() || mine.samples.is_empty() => {
                let mut weights = weights.unwrap_or_default();
                Arc::make_mut(&mut weights).append(&theirs, first_sample);
                Some(weights)
            }
            _ => {
                mine.windows.forget_weights();
                None
            }
        };
        mine.strides.extend(
            theirs
                .strides
                .iter()
                .map(|&(piece, bin, count)| (pieces[piece as usize], bin, count)),
        );
        let marks = |m: &Mark| Mark {
            address: m.address,
            group: group(m.group),
            sample: m.sample + first_sample,
        };
        let mut shifted: Vec<Vec<Mark>> = vec![Vec::new(); first_space as usize];
        shifted.extend(
            theirs
                .incidence
                .spaces()
                .iter()
                .map(|list| list.iter().map(marks).collect()),
        );
        let shifted = Incidence::from_parts(shifted, theirs.incidence.gathered());
        mine.incidence = Incidence::gather(vec![std::mem::take(&mut mine.incidence), shifted]);
        let spot = |spot: Spot| Spot {
            group: if spot.group == NO_LOAD {
                NO_LOAD
            } else {
                group(spot.group)
            },
            ..spot
        };
        mine.samples
            .extend(theirs.samples.into_iter().map(|s| SampleInfo {
                sample: s.sample + first_sample,
                begin: s.begin.map(|b| Beginning {
                    first: spot(b.first),
                    before: spot(b.before),
                }),
                ..s
            }));
        mine.spaces.extend(theirs.spaces);
        mine.damage.extend(theirs.damage);
        mine.census.merge(&theirs.census);
        self.warnings.extend(other.warnings);
        add(&mut self.manifest, other.manifest);
        Ok(())
    }
}

/// Adds the totals of another trace.
fn add(mine: &mut Manifest, other: Manifest) {
    let (a, b) = (&mut mine.totals, other.totals);
    a.records_executed += b.records_executed;
    a.records_kept += b.records_kept;
    a.rows += b.rows;
    a.stores = a.stores.zip(b.stores).map(|(a, b)| a + b);
    a.implied_const += b.implied_const;
    a.samples += b.samples;
    // The sum is unknown if one of them is unknown.
    a.loads_executed = a.loads_executed.zip(b.loads_executed).map(|(a, b)| a + b);
    a.loads_executed_error = a
        .loads_executed_error
        .zip(b.loads_executed_error)
        .map(|(a, b)| a.max(b));
    a.loads_executed_estimate = a
        .loads_executed_estimate
        .zip(b.loads_executed_estimate)
        .map(|(a, b)| a + b);
    a.loads_executed_assumed_error = a
        .loads_executed_assumed_error
        .zip(b.loads_executed_assumed_error)
        .map(|(a, b)| a.max(b));
    a.loads_executed_assumed = a
        .loads_executed_assumed
        .zip(b.loads_executed_assumed)
        .map(|(a, b)| a + b);
    for (into, from) in [
        (&mut a.dropped, b.dropped),
        (&mut a.truncated_windows, b.truncated_windows),
    ] {
        from.into_iter()
            .for_each(|(cause, n)| *into.entry(cause).or_default() += n);
    }
    mine.wall_seconds = mine.wall_seconds.max(other.wall_seconds);
    if mine.state != other.state {
        mine.state = "partial".into();
    }
    mine.threads.extend(other.threads);
    mine.problems.extend(other.problems);
    mine.coverage.add(other.coverage);
    if other.no_samples.is_empty() {
        mine.no_samples.clear();
    }
}
