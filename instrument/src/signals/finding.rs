//! Findings: places that may install a handler that looks at faults, each with its reason.

/// A place that may install a handler that looks at faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Link-time address of the place; 0 if it is no place in the code.
    pub at: u64,
    /// The reason why it is not known to be harmless.
    pub why: Why,
}

/// Reasons why a place that installs a handler is not known to be harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// A word of data holds the address of `sigaction`.
    #[error("the address of sigaction is stored in data")]
    SigactionInData,
    /// The entry of the linkage table is for `sigaction` or `syscall`.
    #[error("an entry of the linkage table that is not understood")]
    StrangeLinkage,
    /// A place that refers to an installer lies in none.
    #[error("code that is in no known function")]
    NoKnownFunction,
    /// A word of data holds the address of one that hands its arguments on.
    #[error("the address of a function that installs any handler is stored in data")]
    InstallerInData,
    /// The file has a slot for `sigaction`, and no code refers to it.
    #[error("sigaction is called by code that is not seen")]
    Unseen,
    /// A function has the name at hand and calls `dlsym`.
    #[error("the loader may be asked for sigaction")]
    ByLoader,
    /// Code takes the address of an installer.
    #[error("the address of sigaction is taken")]
    Taken,
    /// Values are not followed in functions of that size.
    #[error("its function is too large to be followed")]
    TooLarge,
    /// It may be `rt_sigaction`.
    #[error("a system call whose number is not known")]
    UnknownSystemCall,
    /// The number is a constant argument of a function that makes system calls.
    #[error("rt_sigaction by way of syscall()")]
    ByFunction,
    /// An argument is a value that a call left in a register.
    #[error("arguments that are kept over a call")]
    KeptOverCall,
    /// It hands its arguments on, and they may not be its arguments.
    #[error("its function has several entries")]
    SeveralEntries,
    /// It hands different arguments on as actions.
    #[error("its function hands two actions on")]
    TwoActions,
    /// The handler is in memory that is not followed, and the action is not known to be a previous
    /// one.
    #[error("a handler that is described in memory which is not followed")]
    NotFollowed,
    /// The address in the action is no constant.
    #[error("a handler that is not known")]
    UnknownHandler,
    /// No function begins at the address in the action.
    #[error("a handler that is not a known function")]
    NoFunction,
    /// Registers of clones are there.
    #[error("a handler that may use its third argument, the context of the fault")]
    Looks,
    /// The place of a fault in a clone is there.
    #[error("a handler that may use its second argument, the facts about the fault")]
    Asks,
    /// Its instructions or its control flow are not.
    #[error("its function is not understood")]
    NotUnderstood,
}
