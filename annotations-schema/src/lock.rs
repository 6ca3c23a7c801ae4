//! Mutexes whose content stays valid if a thread panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex even if another thread has panicked while it held it.
pub fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
