//! What is found to install a handler that may look at faults, and why.

/// A place that may install a handler that looks at faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where, link-time; 0 if it is no place in the code.
    pub at: u64,
    /// Why it is not known to be harmless.
    pub why: Why,
}

/// Why a place that installs a handler is not known to be harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// A word of data holds the address of `sigaction`.
    #[error("the address of sigaction is stored in data")]
    SigactionInData,
    /// Of the linkage table, for `sigaction` or `syscall`.
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
    /// What a call left in a register is an argument.
    #[error("arguments that are kept over a call")]
    KeptOverCall,
    /// It hands its arguments on, and they may not be its arguments.
    #[error("its function has several entries")]
    SeveralEntries,
    /// It hands different arguments on as actions.
    #[error("its function hands two actions on")]
    TwoActions,
    /// Nor known to be one that was in force before.
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
