//! Source of chunks of rows.

use crate::data::chunk::Chunk;

/// Source of chunks.
pub trait ChunkSource: Sync {
    /// Number of pieces.
    fn pieces(&self) -> usize;
    /// Rows of a piece, as far as known before it is read.
    fn piece_rows(&self, piece: usize) -> u64;
    /// Reads pieces, whose numbers ascend, and returns one result for each. An error skips the
    /// piece. It has a sentence for the user and the number of lost rows.
    fn read(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>>;
    /// As `read`, but the chunks may lack rows. They have runs with the times of their begins and
    /// ends.
    fn runs(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>> {
        self.read(pieces)
    }
    /// Remarks for the user on the data read so far.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
