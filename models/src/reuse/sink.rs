//! Receivers of reuses.

/// Maximum number of slots. Numbers of blocks and slots fit into 16 bits.
pub(crate) const SLOTS: usize = 4096;

/// Receiver of an engine's results for each touched block.
pub trait ReuseSink {
    /// Access `row` (counted from the sample's start) touches `block` for the first time. `tag` is
    /// the caller's tag of the access.
    fn first(&mut self, row: u64, block: u64, tag: u32);
    /// Access `row` touches `block` again: distance and interval as defined above.
    fn reuse(&mut self, row: u64, block: u64, tag: u32, distance: u64, interval: u64);
    /// Either of the two. Distance and interval of a first touch are undefined. It is meant for
    /// sinks that count without branches.
    #[inline(always)]
    fn touch(&mut self, row: u64, block: u64, tag: u32, first: bool, distance: u64, interval: u64) {
        if first {
            self.first(row, block, tag)
        } else {
            self.reuse(row, block, tag, distance, interval)
        }
    }
    /// Completes access `row`, after all its blocks.
    fn done(&mut self, row: u64, tag: u32);
    /// Consecutive accesses that touch one block each. It is meant for sinks that count many at
    /// once.
    #[inline(always)]
    fn narrow(&mut self, touches: &Narrow<'_>) {
        touches.tell(self);
    }
}

/// Consecutive accesses that touch one block each, at most
/// [`KEYS_PER_BATCH`](crate::util::interner::KEYS_PER_BATCH).
pub struct Narrow<'a> {
    /// Row of the first access, below 2^16.
    pub row: u64,
    /// Addresses.
    pub address: &'a [u64],
    /// Log2 of the bytes of a block.
    pub shift: u32,
    /// The caller's tags of the accesses.
    pub tag: &'a [u32],
    /// Numbers of the blocks, in the order of their first touches in the sample.
    pub block: &'a [u32],
    /// The row of the previous touch of the same block; [`NOT_TOUCHED`] for a first touch.
    pub last: &'a [u16],
    /// Distances; 0 for first touches.
    pub distance: &'a [u32],
    /// Indices of the accesses that are not first touches, ascending.
    pub again: &'a [u16],
}

/// Row of a missing touch.
pub const NOT_TOUCHED: u16 = SLOTS as u16;

impl Narrow<'_> {
    /// Passes the accesses to a sink one by one.
    #[inline(always)]
    pub fn tell<S: ReuseSink + ?Sized>(&self, sink: &mut S) {
        let each = self
            .address
            .iter()
            .zip(self.tag)
            .zip(self.last.iter().zip(self.distance));
        for (row, ((&address, &tag), (&last, &distance))) in (self.row..).zip(each) {
            sink.touch(
                row,
                address >> self.shift,
                tag,
                last == NOT_TOUCHED,
                distance.into(),
                row.wrapping_sub(last.into()),
            );
            sink.done(row, tag);
        }
    }
}
