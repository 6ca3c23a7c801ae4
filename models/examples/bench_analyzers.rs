//! The analyzers of Zhong et al., figure 7, for comparison with ours: `bench_analyzers [LARGEST
//! [SMALLEST]]`.
//!
//! N blocks are traversed twice with reuse distance N/100, and last access times are known
//! beforehand, as in the paper; only Kim's markers use blocks. Ours are in `bench_scale_tree`. Each
//! line has the number of blocks, the analyzer, million accesses a second of CPU time, and nodes.
//! Each result is checked: all distances are N/100 − 1.

mod shared;

use shared::{Instant, stream};

/// No node.
const NIL: u32 = u32::MAX;

/// Olken: a splay tree of last access times, with the sizes of subtrees (as in Cheetah).
struct Olken {
    time: Vec<u64>,
    size: Vec<u32>,
    child: Vec<[u32; 2]>,
    parent: Vec<u32>,
    root: u32,
}

impl Olken {
    fn new(blocks: u64) -> Olken {
        let n = blocks as usize;
        Olken {
            time: Vec::with_capacity(n),
            size: Vec::with_capacity(n),
            child: Vec::with_capacity(n),
            parent: Vec::with_capacity(n),
            root: NIL,
        }
    }

    fn size(&self, node: u32) -> u32 {
        self.size.get(node as usize).copied().unwrap_or(0)
    }

    fn update(&mut self, node: u32) {
        let [l, r] = self.child[node as usize];
        self.size[node as usize] = self.size(l) + self.size(r) + 1;
    }

    /// Rotates a node above its parent.
    fn rotate(&mut self, node: u32) {
        let above = self.parent[node as usize];
        let top = self.parent[above as usize];
        let side = usize::from(self.child[above as usize][1] == node);
        let inner = self.child[node as usize][1 - side];
        self.child[above as usize][side] = inner;
        if inner != NIL {
            self.parent[inner as usize] = above;
        }
        self.child[node as usize][1 - side] = above;
        self.parent[above as usize] = node;
        self.parent[node as usize] = top;
        if top != NIL {
            let side = usize::from(self.child[top as usize][1] == above);
            self.child[top as usize][side] = node;
        }
        self.update(above);
        self.update(node);
    }

    fn splay(&mut self, node: u32) {
        while self.parent[node as usize] != NIL {
            let above = self.parent[node as usize];
            let top = self.parent[above as usize];
            if top != NIL {
                let same = (self.child[above as usize][1] == node)
                    == (self.child[top as usize][1] == above);
                self.rotate(if same { above } else { node });
            }
            self.rotate(node);
        }
        self.root = node;
    }

    /// Accesses a block now, whose last access was at `last`. Returns the distance.
    fn access(&mut self, last: Option<u64>, now: u64) -> u64 {
        let (node, distance) = match last {
            None => {
                self.time.push(now);
                self.size.push(1);
                self.child.push([NIL; 2]);
                self.parent.push(NIL);
                (self.time.len() as u32 - 1, 0)
            }
            Some(last) => {
                let mut node = self.root;
                while self.time[node as usize] != last {
                    let later = usize::from(self.time[node as usize] < last);
                    node = self.child[node as usize][later];
                }
                self.splay(node);
                let [l, r] = self.child[node as usize];
                let distance = u64::from(self.size(r));
                // The node leaves the tree. Then later times are attached above earlier ones.
                for part in [l, r] {
                    if part != NIL {
                        self.parent[part as usize] = NIL;
                    }
                }
                self.root = if l == NIL { r } else { l };
                if l != NIL && r != NIL {
                    let mut latest = l;
                    while self.child[latest as usize][1] != NIL {
                        latest = self.child[latest as usize][1];
                    }
                    self.splay(latest);
                    self.child[latest as usize][1] = r;
                    self.parent[r as usize] = latest;
                    self.update(latest);
                }
                (node, distance)
            }
        };
        // It has the greatest time: all other nodes are to its left.
        self.time[node as usize] = now;
        self.child[node as usize] = [self.root, NIL];
        self.parent[node as usize] = NIL;
        if self.root != NIL {
            self.parent[self.root as usize] = node;
        }
        self.update(node);
        self.root = node;
        distance
    }
}

/// Bennett and Kruskal: a bit for each time of a block's last access, under a tree of sums with `1
/// << bits` children.
struct BitTree {
    bits: u32,
    levels: Vec<Vec<u32>>,
}

impl BitTree {
    fn new(times: u64, bits: u32) -> BitTree {
        let mut levels = Vec::new();
        let mut n = times as usize + 1;
        while n > 1 {
            levels.push(vec![0; n]);
            n = n.div_ceil(1 << bits);
        }
        BitTree { bits, levels }
    }

    fn add(&mut self, time: u64, by: i32) {
        let mut at = time as usize;
        for level in &mut self.levels {
            level[at] = level[at].wrapping_add_signed(by);
            at >>= self.bits;
        }
    }

    fn access(&mut self, last: Option<u64>, now: u64) -> u64 {
        let mut distance = 0;
        if let Some(last) = last {
            let mut at = last as usize;
            for level in &self.levels {
                let end = (((at >> self.bits) + 1) << self.bits).min(level.len());
                distance += level[at + 1..end]
                    .iter()
                    .map(|&n| u64::from(n))
                    .sum::<u64>();
                at >>= self.bits;
            }
            self.add(last, -1);
        }
        self.add(now, 1);
        distance
    }
}

/// Kim, Hill and Wood: the stack as a list, with markers at three depths. It gives the two markers
/// between which a distance is.
struct Markers {
    next: Vec<u32>,
    previous: Vec<u32>,
    /// Number of markers above each block; 4: not in the list.
    zone: Vec<u8>,
    first: u32,
    length: u64,
    depths: [u64; 3],
    at: [u32; 3],
}

impl Markers {
    fn new(blocks: u64) -> Markers {
        let n = blocks as usize;
        Markers {
            next: vec![NIL; n],
            previous: vec![NIL; n],
            zone: vec![4; n],
            first: NIL,
            length: 0,
            depths: [32, 16 << 10, blocks],
            at: [NIL; 3],
        }
    }

    /// Accesses a block. Returns the zone of its distance: 0 is before the first marker.
    fn access(&mut self, block: u64) -> u8 {
        let block = block as u32;
        let zone = self.zone[block as usize];
        if self.first == block {
            return 0;
        }
        // Zones before that of the block grow by one, so their last blocks move into the next zone.
        let before = self.length;
        for m in 0..3 {
            if m < usize::from(zone) && self.at[m] != NIL {
                let moved = self.at[m];
                self.zone[moved as usize] = m as u8 + 1;
                self.at[m] = self.previous[moved as usize];
            } else if self.at[m] == block {
                self.at[m] = self.previous[block as usize];
            }
        }
        let (previous, next) = (self.previous[block as usize], self.next[block as usize]);
        if zone == 4 {
            self.length += 1;
        } else {
            self.next[previous as usize] = next;
            if next != NIL {
                self.previous[next as usize] = previous;
            }
        }
        self.previous[block as usize] = NIL;
        self.next[block as usize] = self.first;
        if self.first != NIL {
            self.previous[self.first as usize] = block;
        }
        self.first = block;
        self.zone[block as usize] = 0;
        for m in 0..3 {
            // A marker at depth one is on the accessed block itself. When the list reaches a
            // marker's depth, the marker is set.
            if self.length == self.depths[m] && before != self.length {
                let mut last = self.first;
                while self.next[last as usize] != NIL {
                    last = self.next[last as usize];
                }
                self.at[m] = last;
            } else if self.at[m] == NIL && self.depths[m] == 1 {
                self.at[m] = block;
            }
        }
        zone
    }
}

/// Last access time of the block accessed at `time`, if any. The stream has chunks of `step`, each
/// twice.
fn last(time: u64, step: u64) -> Option<u64> {
    (time / step % 2 == 1).then(|| time - step)
}

/// Million accesses per second.
fn speed(n: u64, mut access: impl FnMut(Option<u64>, u64, u64)) -> f64 {
    let step = (n / 100).max(1);
    let clock = Instant::now();
    for (time, block) in stream(n).enumerate() {
        access(last(time as u64, step), time as u64, block);
    }
    (n / step * step * 2) as f64 / clock.seconds() / 1e6
}

fn main() {
    let number = |at: usize, or: u64| {
        std::env::args()
            .nth(at)
            .and_then(|a| a.parse::<f64>().ok())
            .map_or(or, |v| v as u64)
    };
    let largest = number(1, 10_000_000);
    let mut n = number(2, 100_000);
    while n <= largest {
        let wanted = n / 100 - 1;
        let tell = |name: &str, speed: f64, nodes: u64| println!("{n} {name} {speed:.2} {nodes}");
        let check = |name: &str, last: Option<u64>, distance: u64| {
            assert!(last.is_none() || distance == wanted, "{name}: {distance}");
        };
        let mut olken = Olken::new(n);
        tell(
            "Olken",
            speed(n, |last, now, _| {
                check("Olken", last, olken.access(last, now))
            }),
            n,
        );
        drop(olken);
        for (name, bits) in [("BK-2", 1), ("BK-16", 4), ("BK-256", 8)] {
            let mut tree = BitTree::new(2 * n, bits);
            tell(
                name,
                speed(n, |last, now, _| check(name, last, tree.access(last, now))),
                2 * n,
            );
        }
        let mut markers = Markers::new(n);
        let zone = [32, 16 << 10, n].iter().filter(|&&d| wanted >= d).count() as u8;
        tell(
            "KHW",
            speed(n, |last, _, block| {
                let found = markers.access(block);
                assert!(last.is_none() || found == zone, "KHW: {found}");
            }),
            n,
        );
        drop(markers);
        n *= 10;
    }
}
