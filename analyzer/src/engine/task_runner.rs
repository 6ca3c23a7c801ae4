//! Runs the tasks of a batch.

use crate::data::chunk::Chunk;
use crate::data::rows::ColumnSlices;
use crate::engine::batch::{Handover, SampleRows, Span, Task, is_short};
use crate::engine::{Collect, Driver, Worker};
use crate::stages::line_visits::LineVisits;
use crate::stages::reuse::SampleReuse;
use crate::stages::reuse::extra::SampleOrigin;
use crate::stages::strides::Strides;
use crate::stages::windows::WindowEngine;

/// Data that all tasks of a batch share.
pub(super) struct TaskRunner<'a> {
    pub(super) driver: &'a Driver,
    pub(super) chunks: &'a [Chunk],
    /// Engines of the sample that was open before the batch.
    pub(super) before: &'a Handover,
    /// Engines of the sample that is open after it.
    pub(super) after: &'a Handover,
}

impl TaskRunner<'_> {
    /// Runs a task with one of the workers.
    pub(super) fn run(&self, task: Task<'_>, progress: &(dyn Fn(u64) + Sync)) {
        let mut worker = self.driver.worker();
        match task {
            Task::Footprint(rows, space, bucket) => {
                worker.bucket(bucket).footprints.add(&rows, space);
                progress(rows.len() as u64);
            }
            Task::Short(spans) => {
                let home = |span: &Span| self.driver.home(&span.run);
                for same in spans.chunk_by(|a, b| home(a) == home(b)) {
                    self.short(&mut worker, same, home(&same[0]));
                }
            }
            Task::Reuse(span) => self.reuse(&mut worker, span),
            Task::Windows(span) => self.windows(&mut worker, span),
        }
        self.driver.give_back(worker);
    }

    fn rows(&self, part: &SampleRows) -> ColumnSlices<'_> {
        let loads = &self.chunks[part.chunk].loads;
        loads.rows().slice(part.rows.clone())
    }

    fn sites(&self, part: &SampleRows) -> &[u32] {
        self.chunks[part.chunk].loads.sites(part.rows.clone())
    }

    fn origin(&self, span: &Span, part: &SampleRows) -> SampleOrigin {
        let objects = &self.driver.objects;
        let (first, last) = part.time;
        let chunk = &self.chunks[part.chunk];
        let times = objects
            .as_ref()
            .map(|_| chunk.load_times(part.rows.clone()));
        SampleOrigin {
            times: times.unwrap_or_default(),
            space: span.space,
            process: span.run.process,
            objects: objects.clone(),
            stack: objects.as_ref().map_or_else(Default::default, |o| {
                o.own_stack(span.run.process, span.run.thread, first)
            }),
            clock: (
                first,
                last.saturating_sub(first) as f64 / part.rows.len().saturating_sub(1).max(1) as f64,
            ),
            heat: self.driver.heat.clone(),
            column: part.column,
            part: part.bucket,
        }
    }

    /// Begins a sample if the lines that samples visit are collected.
    fn begin_lines(&self, lines: &mut LineVisits, span: &Span) {
        if let Some(caches) = &self.driver.options.lines {
            let sample = span.run.sample;
            lines.begin(span.space, sample, caches, self.driver.watched(sample));
        }
    }

    /// Runs all stages over short samples of one bucket.
    fn short(&self, worker: &mut Worker, spans: &[Span], bucket: u32) {
        let options = &self.driver.options;
        worker.bucket(bucket);
        let Worker {
            buckets,
            windows,
            strides,
            fetches,
            incidence,
            lines,
            sample,
            ..
        } = worker;
        let reuse = &mut buckets[bucket as usize].reuse;
        for span in spans {
            sample.begin(span.run.sample, reuse);
            windows.begin(self.driver.weight(span.run.sample));
            strides.begin();
            self.begin_lines(lines, span);
            for part in &span.parts {
                let rows = self.rows(part);
                if !options.lines_alone {
                    sample.run(&rows, &self.origin(span, part), reuse);
                }
                if options.windows {
                    windows.run_in_blocks(
                        &rows,
                        sample.blocks(rows.len()).filter(|_| span.parts.len() == 1),
                        options.block_shift,
                    );
                    strides.run(rows.address, self.sites(part), options.sites);
                    fetches.run(&rows);
                }
                if options.incidence != Collect::Nothing {
                    incidence.add(&rows, span.space, span.run.sample);
                }
                if options.lines.is_some() {
                    lines.run(&rows, self.sites(part));
                }
            }
            fetches.finish();
            if options.lines.is_some() {
                lines.finish();
            }
        }
        sample.finish(reuse);
    }

    /// Runs the reuse stage over a long sample.
    fn reuse(&self, worker: &mut Worker, span: &Span) {
        let driver = self.driver;
        let begun = (span.continues).then(|| self.before.reuse.take()).flatten();
        let reuse = &mut worker.bucket(driver.home(&span.run)).reuse;
        let mut sample = begun.unwrap_or_else(|| {
            let mut sample = SampleReuse::new(driver.options.block_shift, driver.weights.clone());
            sample.begin(span.run.sample, reuse);
            sample
        });
        for part in &span.parts {
            sample.run(&self.rows(part), &self.origin(span, part), reuse);
        }
        if span.open {
            self.after.reuse.put(sample);
        } else {
            sample.finish(reuse);
        }
    }

    /// Runs all stages except footprint and reuse over a long sample.
    fn windows(&self, worker: &mut Worker, span: &Span) {
        let options = &self.driver.options;
        let before = Some(self.before).filter(|_| span.continues);
        let begun = before.and_then(|b| b.windows.take().zip(b.strides.take()));
        let (mut windows, mut strides) = begun.unwrap_or_else(|| {
            let (mut windows, mut strides) = (WindowEngine::default(), Strides::default());
            windows.begin(self.driver.weight(span.run.sample));
            strides.begin();
            (windows, strides)
        });
        let mut fetches = before.and_then(|b| b.fetches.take()).unwrap_or_default();
        let mut lines = before.and_then(|b| b.lines.take()).unwrap_or_else(|| {
            let mut lines = LineVisits::default();
            self.begin_lines(&mut lines, span);
            lines
        });
        for part in &span.parts {
            let rows = self.rows(part);
            if options.lines.is_some() && is_short(lines.pending() + rows.len() as u64) {
                lines.run(&rows, self.sites(part));
            } else {
                lines.skip();
            }
            if options.windows {
                windows.run(&rows);
                strides.run(rows.address, self.sites(part), options.sites);
                fetches.run(&rows);
            }
            if options.incidence != Collect::Nothing {
                worker.incidence.add(&rows, span.space, span.run.sample);
            }
        }
        if span.open {
            self.after.windows.put(windows);
            self.after.strides.put(strides);
            self.after.fetches.put(fetches);
            self.after.lines.put(lines);
        } else {
            lines.finish();
            worker.lines.merge(lines);
            worker.windows.merge(&windows);
            worker.strides.merge(strides);
            worker.fetches.merge(fetches);
        }
    }
}
