//! Code that may install a handler that looks at faults, each with its reason.

/// Code that may install a handler that looks at faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerInstaller {
    /// Link-time address of the code; 0 if there is none.
    pub at: u64,
    /// The reason why it is not known to be harmless.
    pub why: Why,
}

/// Reasons why code that installs a handler is not known to be harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// A word of data holds the address of `sigaction`.
    #[error("the address of sigaction is stored in data")]
    SigactionInData,
    /// A linkage-table entry for `sigaction` or `syscall` has an unknown form.
    #[error("an entry of the linkage table that is not understood")]
    StrangeLinkage,
    /// The code that refers to an installer is in no known function.
    #[error("code that is in no known function")]
    NoKnownFunction,
    /// A word of data holds the address of a function that passes its arguments on to an installer.
    #[error("the address of a function that installs any handler is stored in data")]
    InstallerInData,
    /// The file has a slot for `sigaction`, and no code refers to it.
    #[error("sigaction is called by code that is not seen")]
    Unseen,
    /// A function refers to the name `sigaction` and calls `dlsym`.
    #[error("the loader may be asked for sigaction")]
    ByLoader,
    /// Code takes the address of an installer.
    #[error("the address of sigaction is taken")]
    Taken,
    /// The function is too large for values to be followed.
    #[error("its function is too large to be followed")]
    TooLarge,
    /// The system call may be `rt_sigaction`.
    #[error("a system call whose number is not known")]
    UnknownSystemCall,
    /// The number is a constant argument of a function that makes system calls.
    #[error("rt_sigaction by way of syscall()")]
    ByFunction,
    /// An argument is a value that a call left in a register.
    #[error("arguments that are kept over a call")]
    KeptOverCall,
    /// The function passes its arguments on, but may be entered with other values.
    #[error("its function has several entries")]
    SeveralEntries,
    /// The function passes different arguments on as actions.
    #[error("its function hands two actions on")]
    TwoActions,
    /// The handler is in memory that is not tracked, and the action is not known to be a previous
    /// one.
    #[error("a handler that is described in memory which is not followed")]
    NotFollowed,
    /// The address in the action is no constant.
    #[error("a handler that is not known")]
    UnknownHandler,
    /// No function begins at the address in the action.
    #[error("a handler that is not a known function")]
    NoFunction,
    /// The handler may use the context, which has registers of clones.
    #[error("a handler that may use its third argument, the context of the fault")]
    Looks,
    /// The handler may use the facts about the fault, which have its address in a clone.
    #[error("a handler that may use its second argument, the facts about the fault")]
    Asks,
    /// The function's instructions or control flow could not be analysed.
    #[error("its function is not understood")]
    NotUnderstood,
}
