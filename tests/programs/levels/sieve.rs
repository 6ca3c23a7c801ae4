//! Prime numbers by a sieve, and the distances between them.
/// The round in which a number was crossed out last.
static mut CROSSED: [u8; 300_000] = [0; 300_000];

fn main() {
    let rounds: u8 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(0);
    // SAFETY: there is one thread.
    let crossed = unsafe { &mut *std::ptr::addr_of_mut!(CROSSED) };
    let mut gaps = [0u32; 256];
    for round in 1..=rounds {
        for i in 2..548 {
            if crossed[i] != round {
                let mut at = i * i;
                while at < crossed.len() {
                    crossed[at] = round;
                    at += i;
                }
            }
        }
        let mut last = 2;
        for (i, &c) in crossed.iter().enumerate().skip(2) {
            if c != round {
                gaps[(i - last) & 255] += 1;
                last = i;
            }
        }
    }
    std::process::exit(i32::from(gaps[7] == 7));
}
