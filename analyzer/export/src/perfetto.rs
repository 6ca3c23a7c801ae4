//! Perfetto's trace: a track for each thread with a slice for each window, inside slices of its
//! callers, and counters.

use crate::profile::Profile;
use crate::protobuf::Message;

/// Kinds of events.
const BEGIN: u64 = 1;
const END: u64 = 2;
const COUNTER: u64 = 4;
/// The sequence of all packets.
const SEQUENCE: u64 = 1;

fn packet(inner: Message) -> Message {
    Message::new().message(1, inner.number(10, SEQUENCE))
}

fn event(time: u64, kind: u64, track: u64, more: impl FnOnce(Message) -> Message) -> Message {
    let event = more(Message::new().number(9, kind).number(11, track));
    packet(Message::new().number(8, time).message(11, event))
}

/// The file.
pub fn encode_perfetto(profile: &Profile) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    let (process_track, thread_track, counter_track) = (1u64 << 32, 2u64 << 32, 3u64 << 32);
    let mut processes: Vec<u32> = profile.threads.iter().map(|t| t.process).collect();
    processes.sort_unstable();
    processes.dedup();
    let mut put = |message: Message| out.extend(message.bytes);
    let describe = |inner: Message| packet(Message::new().message(60, inner));
    for &process in &processes {
        let about = Message::new()
            .number(1, u64::from(process))
            .text(6, &profile.command_line());
        put(describe(
            Message::new()
                .number(1, process_track + u64::from(process))
                .message(3, about),
        ));
    }
    for (at, thread) in profile.threads.iter().enumerate() {
        let about = Message::new()
            .number(1, u64::from(thread.process))
            .number(2, u64::from(thread.thread))
            .text(5, &thread.name);
        put(describe(
            Message::new()
                .number(1, thread_track + at as u64)
                .message(4, about),
        ));
        let counter = Message::new().text(6, "loads per microsecond");
        put(describe(
            Message::new()
                .number(1, counter_track + at as u64)
                .text(2, "recorded loads per µs")
                .number(5, process_track + u64::from(thread.process))
                .message(8, counter),
        ));
    }
    for slice in &profile.slices {
        let track = thread_track + slice.thread as u64;
        let mut loads = slice.loads.clone();
        loads.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let place = |at: usize| &profile.places[at];
        let name = loads.first().map_or("", |l| place(l.0).function.as_str());
        let note = |key: &str| Message::new().text(10, key);
        // An end comes after its begin, even if a window lasts less than a nanosecond.
        let end = slice.to_ns.max(slice.from_ns + 1);
        // The callers of that function are slices around it.
        let callers = loads.first().map_or(&[][..], |l| &place(l.0).callers);
        for caller in callers.iter().rev() {
            put(event(slice.from_ns, BEGIN, track, |event| {
                let event = event.text(22, "caller").text(23, &caller.function);
                match caller.line {
                    0 => event,
                    line => {
                        let file = caller.file.rsplit('/').next().unwrap_or("");
                        event.message(4, note("call").text(6, &format!("{file}:{line}")))
                    }
                }
            }));
        }
        put(event(slice.from_ns, BEGIN, track, |event| {
            let mut event = event.text(22, "loads").text(23, name);
            event = event.message(4, note("loads").number(3, slice.all()));
            for &(at, count) in loads.iter().take(8) {
                let frame = &place(at).frames[0];
                let file = frame.file.rsplit('/').next().unwrap_or("");
                let key = format!("{} {file}:{}", frame.function, frame.line);
                event = event.message(4, note(&key).number(3, count));
            }
            event
        }));
        put(event(end, END, track, |event| event));
        for _ in callers {
            put(event(end, END, track, |event| event));
        }
        let rate = slice.all() as f64 * 1000.0 / (end - slice.from_ns) as f64;
        let counter = counter_track + slice.thread as u64;
        put(event(slice.from_ns, COUNTER, counter, |event| {
            event.double(44, rate)
        }));
        put(event(end, COUNTER, counter, |event| event.double(44, 0.0)));
    }
    out
}
