//! Turns a panic of a decoder that meets damaged bytes into an error, without its message on
//! stderr.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; a panic inside becomes an `Err` with its message.
pub fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.with(Cell::get) {
                before(info);
            }
        }));
    });
    let outer = QUIET.with(|q| q.replace(true));
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.with(|q| q.set(outer));
    result.map_err(|cause| {
        let text = cause
            .downcast_ref::<&str>()
            .map(|s| (*s).to_string())
            .or_else(|| cause.downcast_ref::<String>().cloned());
        text.unwrap_or_else(|| "the decoder gave up".into())
    })
}

#[cfg(test)]
mod tests {
    use super::quietly;

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        assert_eq!(quietly(|| 3), Ok(3));
        assert_eq!(
            quietly(|| panic!("bad page {}", 7)).map(|_: u8| ()),
            Err("bad page 7".to_string())
        );
    }
}
