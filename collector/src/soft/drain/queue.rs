//! The recorder's state of one thread slot, and the order in which its chunks are written.
//!
//! The holder of the intake claims chunks, one after the other, and gets a [`Ticket`] with each.
//! Several workers read and encode chunks at a time; they return places and write content in the
//! order of the tickets. The holder of the intake may wait for all tickets; the holder of a ticket
//! never waits for the intake.

use crate::soft::drain::Stream;
use mgz_annotations_schema::lock::locked;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// One thread slot's queue.
#[derive(Default)]
pub(crate) struct Queue {
    /// Locked by the worker that claims a chunk or closes the queue.
    pub intake: Mutex<Intake>,
    /// Number of chunks claimed, to check for work without the lock. Only the holder of the intake
    /// changes it.
    pub claimed: AtomicU64,
    /// True during closing: the closing worker takes all chunks that wait.
    pub closing: AtomicBool,
    outlet: Mutex<Outlet>,
    turn: Condvar,
}

/// State of incoming chunks.
#[derive(Default)]
pub(crate) struct Intake {
    /// Number of tickets issued.
    tickets: u64,
    /// The thread found dead at the last look at this slot, with its position.
    pub suspect: Option<(u32, u32, u64, u64)>,
    /// True if closed for good although its owner may live.
    pub abandoned: bool,
}

/// Destination of chunks.
#[derive(Default)]
pub(crate) struct Outlet {
    /// Number of tickets completed.
    done: u64,
    /// The thread's output to its file.
    pub stream: Option<Stream>,
}

impl Queue {
    /// The next ticket in the order of writing. The argument proves that the caller holds the
    /// intake.
    pub fn ticket(&self, intake: &mut Intake) -> Ticket<'_> {
        let number = intake.tickets;
        intake.tickets += 1;
        Ticket {
            queue: self,
            number,
        }
    }

    /// The outlet once everything claimed is written. The argument proves that the caller holds the
    /// intake, so no further chunks are claimed.
    pub fn settled(&self, intake: &Intake) -> MutexGuard<'_, Outlet> {
        self.when_done(intake.tickets)
    }

    fn when_done(&self, tickets: u64) -> MutexGuard<'_, Outlet> {
        let mut outlet = locked(&self.outlet);
        // `wait_while` returns at once if a worker has panicked while it held the outlet, which
        // would break the order.
        while outlet.done != tickets {
            outlet = self
                .turn
                .wait(outlet)
                .unwrap_or_else(PoisonError::into_inner);
        }
        outlet
    }
}

/// A turn in the order of writing. It is completed on drop in every case, so that no other ticket
/// waits for ever.
pub(crate) struct Ticket<'a> {
    queue: &'a Queue,
    number: u64,
}

impl Ticket<'_> {
    /// The outlet once all earlier tickets are completed. No other worker writes while the ticket
    /// lives.
    pub fn outlet(&self) -> MutexGuard<'_, Outlet> {
        self.queue.when_done(self.number)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.outlet().done += 1;
        self.queue.turn.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_written_in_the_order_in_which_they_were_claimed_also_where_workers_panic() {
        let queue = Queue::default();
        let mut intake = locked(&queue.intake);
        let mut tickets: Vec<_> = (0..16).map(|_| queue.ticket(&mut intake)).collect();
        let written = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            // The last tickets come first, so that they have to wait.
            while let Some(ticket) = tickets.pop() {
                let written = &written;
                scope.spawn(move || {
                    let number = ticket.number;
                    // Some workers panic before their turn, some while they hold the outlet.
                    let panics =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                            let outlet = if [3, 8].contains(&number) {
                                std::panic::resume_unwind(Box::new(()))
                            } else {
                                ticket.outlet()
                            };
                            assert_eq!(outlet.done, number);
                            if [0, 5, 11].contains(&number) {
                                std::panic::resume_unwind(Box::new(()));
                            }
                            locked(written).push(number);
                        }));
                    assert_eq!(panics.is_err(), [0, 3, 5, 8, 11].contains(&number));
                });
                // The others begin to wait during this time.
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            assert_eq!(queue.settled(&intake).done, 16);
        });
        assert_eq!(
            *locked(&written),
            (0..16)
                .filter(|n| ![0, 3, 5, 8, 11].contains(n))
                .collect::<Vec<_>>()
        );
    }
}
