//! Source of chunks of rows.

use crate::data::rows::Chunk;

/// Source of chunks.
pub trait ChunkSource: Sync {
    /// Number of pieces.
    fn pieces(&self) -> usize;
    /// Rows of a piece, as far as known before it is read.
    fn piece_rows(&self, piece: usize) -> u64;
    /// Reads pieces, whose numbers ascend, and returns one result for each; an error is a sentence for the
    /// user and the number of rows that are lost, and the piece is skipped.
    fn read(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>>;
    /// As `read`, but the chunks may have no rows, only their runs and where these begin and end in time.
    fn runs(&self, pieces: &[usize]) -> Vec<Result<Chunk, (String, u64)>> {
        self.read(pieces)
    }
    /// Sentences about what was met so far.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
