//! Which load a thread has waited for when a trigger came.
//!
//! An interrupt lets the oldest instruction under way finish. A load that waits for memory is the
//! oldest for as long as it waits, so the trigger comes right behind it: the instruction before the
//! one that comes next is the load that had the time.

use mgz_annotations_schema::sidecar::{Sidecar, SiteFlags};

/// The longest instruction.
const LONGEST: u64 = 15;

/// The load that stands right before `ip` (link-time addresses), as its site. `None` if there is
/// none, or if control may have come to `ip` from elsewhere: to the head of a loop from its end.
pub fn load_before(sidecar: &Sidecar, ip: u64) -> Option<u32> {
    let behind = sidecar.functions.partition_point(|f| f.start <= ip);
    let function = behind.checked_sub(1)?;
    if ip >= sidecar.functions[function].end {
        return None;
    }
    let function = function as u32;
    let behind = sidecar
        .sites
        .partition_point(|s| (s.function, s.ip) < (function, ip));
    let (number, site) = sidecar.sites[..behind]
        .iter()
        .enumerate()
        .rev()
        .take_while(|(_, s)| s.function == function && s.ip + LONGEST >= ip)
        .find(|(_, s)| s.flags & SiteFlags::STORE == 0)?;
    let is_head = |header: u64| site.ip < header && header <= ip;
    (!sidecar.loops.iter().any(|l| is_head(l.header))).then_some(number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mgz_annotations_schema::sidecar::{Function, Loop, Site};

    #[test]
    fn the_load_right_before_has_waited() {
        let function = |start: u64, end: u64| Function {
            start,
            end,
            ..Function::default()
        };
        let site = |function, ip, flags| Site {
            function,
            ip,
            flags,
            ..Site::default()
        };
        let sidecar = Sidecar {
            functions: vec![function(0x100, 0x180), function(0x200, 0x280)],
            sites: vec![
                site(0, 0x100, 0),
                site(0, 0x170, 0),
                site(1, 0x200, 0),
                site(1, 0x210, 0),
                site(1, 0x214, SiteFlags::STORE),
            ],
            loops: vec![Loop {
                function: 1,
                header: 0x208,
                latch: 0x230,
                ..Loop::default()
            }],
            ..Sidecar::default()
        };
        let before = |ip| load_before(&sidecar, ip);
        assert_eq!(before(0x100), None, "it has only just begun");
        assert_eq!(before(0x104), Some(0));
        assert_eq!(before(0x120), None, "what lies between has run since");
        assert_eq!(before(0x17f), Some(1));
        assert_eq!(before(0x200), None, "of another function");
        assert_eq!(before(0x204), Some(2));
        assert_eq!(before(0x208), None, "control may come from the loop's end");
        assert_eq!(before(0x20a), None);
        assert_eq!(before(0x218), Some(3), "a store does not wait");
        assert_eq!(before(0x190), None, "in no function");
        assert_eq!(before(0), None);
    }
}
