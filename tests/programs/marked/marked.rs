// One phase that loads 1,000 numbers; far more are loaded outside.
#[inline(never)]
fn sum(numbers: &[u64]) -> u64 {
    let read = |n: &u64| unsafe { std::ptr::read_volatile(n) };
    numbers.iter().map(read).sum()
}

fn main() {
    let numbers = vec![1; 1000];
    let mut total: u64 = (0..50).map(|_| sum(&numbers)).sum();
    {
        let _phase = mgz_markers::Phase::begin();
        total += sum(&numbers);
    }
    total += sum(&numbers);
    println!("{total}");
}
