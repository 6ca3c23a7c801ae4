//! Which samples of threads without windows have rows, and where they end.
//!
//! A sample consists of consecutive segments. Rows of a segment may come with the next one, so a
//! sample's end is known only after it.

use crate::convert::SampleSeen;
use mgz_annotations_schema::expand::Staged;

/// The current sample.
#[derive(Default)]
pub(crate) struct Stretches {
    current: Option<SampleSeen>,
    has_rows: bool,
}

impl Stretches {
    /// The thread's next segment was expanded, into the rows from `first` on. `seen`: its sample,
    /// with the segment's own numbers.
    pub(crate) fn segment(
        &mut self,
        rows: &Staged,
        first: usize,
        seen: SampleSeen,
        out: &mut Vec<SampleSeen>,
    ) {
        self.note(rows.sample_of(first));
        if self.current.is_none_or(|c| c.sample != seen.sample) {
            self.end(out);
        }
        self.current = Some(seen);
        let last = rows.len().checked_sub(1).filter(|&last| last >= first);
        self.note(last.and_then(|last| rows.sample_of(last)));
    }

    /// The thread has ended; its last rows are those from `first` on.
    pub(crate) fn finish(&mut self, rows: &Staged, first: usize, out: &mut Vec<SampleSeen>) {
        self.note(rows.sample_of(first));
        self.end(out);
    }

    /// A row is of this sample.
    fn note(&mut self, sample: Option<u32>) {
        self.has_rows |= sample.is_some() && sample == self.current.map(|c| c.sample);
    }

    fn end(&mut self, out: &mut Vec<SampleSeen>) {
        let had_rows = std::mem::take(&mut self.has_rows);
        out.extend(self.current.take().filter(|_| had_rows));
    }
}
