//! Why a function is left unchanged.

use std::fmt;

/// Why a function is left unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LeftReason {
    /// Not selected by `--functions`, or selected by `--exclude`.
    NotSelected,
    /// Its unwind entry overlaps another.
    OverlapsOther,
    /// Two decodings of the same bytes are both reachable.
    OverlappingInstructions,
    /// Reachable bytes that are no instruction.
    Undecodable,
    /// A branch goes into the middle of an instruction.
    BranchIntoInstruction,
    /// A branch goes to bytes of the function that are not decoded as code.
    BranchIntoData,
    /// Unwind data (LSDA) that cannot be parsed.
    Unwind,
    /// Restartable sequences.
    RestartableSequence,
    /// Hardware transactions.
    Transaction,
    /// Uses the `%gs` base, which belongs to the software backend.
    UsesGs,
    /// Sets the trap flag or the alignment check, which clones do not support.
    SetsFlags,
    /// Belongs to a sanitizer's runtime.
    SanitizerRuntime,
    /// No bytes in the file.
    NoBytes,
    /// Any other reason that the caller of analysis has.
    Unsupported(&'static str),
}

impl fmt::Display for LeftReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeftReason::NotSelected => "not selected by --functions or --exclude",
            LeftReason::OverlapsOther => "overlaps another function",
            LeftReason::OverlappingInstructions => "overlapping instructions",
            LeftReason::Undecodable => "bytes that do not decode",
            LeftReason::BranchIntoInstruction => "branch into the middle of an instruction",
            LeftReason::BranchIntoData => "branch into data",
            LeftReason::Unwind => "unwind data not understood",
            LeftReason::RestartableSequence => "uses restartable sequences",
            LeftReason::Transaction => "uses hardware transactions",
            LeftReason::UsesGs => "uses the gs segment",
            LeftReason::SetsFlags => "sets the trap flag or the alignment check",
            LeftReason::SanitizerRuntime => "belongs to a sanitizer's runtime",
            LeftReason::NoBytes => "no bytes in the file",
            LeftReason::Unsupported(why) => why,
        })
    }
}
