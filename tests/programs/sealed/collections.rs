//! Collections of Rust: counted words, an ordered map, labels of a graph.
use std::collections::{BTreeMap, HashMap};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 20) % n
    }

    /// Few small numbers are frequent.
    fn skewed(&mut self, n: u64) -> u64 {
        let x = self.below(1 << 20) as f64 / (1 << 20) as f64;
        (n as f64 * x * x * x) as u64
    }
}

fn count_words(text: &str) -> usize {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for word in text.split(' ') {
        *counts.entry(word).or_default() += 1;
    }
    counts.values().copied().max().unwrap_or(0)
}

fn words(rounds: u64) -> usize {
    let mut random = Random(7);
    let mut text = String::new();
    for _ in 0..60_000 {
        text += &format!("w{} ", random.skewed(30_000) * 7919);
    }
    (0..rounds).map(|_| count_words(&text)).sum()
}

fn replace_some(map: &mut BTreeMap<u64, u64>, random: &mut Random) -> u64 {
    let mut sum = 0;
    for _ in 0..25_000 {
        let key = random.below(1 << 40);
        let found = map.range(key..).next().map(|(k, _)| *k);
        if let Some(found) = found {
            sum += map.remove(&found).unwrap_or(0);
            map.insert(key, key % 1000);
        }
    }
    sum
}

fn ordered(rounds: u64) -> usize {
    let mut random = Random(11);
    let mut map = BTreeMap::new();
    for _ in 0..60_000 {
        map.insert(random.below(1 << 40), 1);
    }
    (0..rounds)
        .map(|_| replace_some(&mut map, &mut random) as usize)
        .sum()
}

fn spread_labels(edges: &[Vec<u32>], labels: &mut [u32]) -> usize {
    let mut changes = 0;
    for v in 0..labels.len() {
        let least = edges[v]
            .iter()
            .map(|&w| labels[w as usize])
            .min()
            .unwrap_or(u32::MAX);
        if least < labels[v] {
            labels[v] = least;
            changes += 1;
        }
    }
    changes
}

fn labels(rounds: u64) -> usize {
    let mut random = Random(13);
    let edges: Vec<Vec<u32>> = (0..160_000)
        .map(|_| {
            (0..1 + random.below(10))
                .map(|_| random.below(160_000) as u32)
                .collect()
        })
        .collect();
    let mut changes = 0;
    for _ in 0..rounds {
        let mut labels: Vec<u32> = (0..160_000).collect();
        changes += spread_labels(&edges, &mut labels) + spread_labels(&edges, &mut labels);
    }
    changes
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let rounds = arguments[2].parse().expect("rounds");
    let result = match arguments[1].as_str() {
        "word-count" => words(rounds),
        "btree-map" => ordered(rounds),
        "labels" => labels(rounds),
        other => panic!("unknown kind {other}"),
    };
    println!("{result}");
}
