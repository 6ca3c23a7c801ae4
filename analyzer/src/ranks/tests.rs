//! Merging results of ranks.

use super::*;

fn name(rank: u32) -> RankName {
    RankName {
        rank: Some(rank),
        host: format!("node{}", rank / 4),
        trace: format!("trace.{rank}"),
    }
}

/// A synthetic result that differs by rank.
fn of(rank: u32) -> Ranks {
    let name = name(rank);
    let n = u64::from(rank);
    let spreads = |loads: u64| Spreads {
        loads: RankSpread::of(loads, &name),
        footprint: RankSpread::of(loads / 3, &name),
        distance: RankSpread::of(1000 + n, &name),
    };
    let names = |all: &[&str]| -> RowNames { all.iter().map(|&s| s.to_owned()).collect() };
    let mut ranks = Ranks {
        block: 64,
        ..Ranks::default()
    };
    ranks.ranks.push(RankRow {
        name: name.clone(),
        key: format!("{rank:032x}"),
        world_size: Some(1 << 20),
        local_rank: Some(rank % 4),
        state: "complete".into(),
        program_status: "exit 0".into(),
        metrics: vec![
            Some(1000 + n * 7 % 13),
            Some(50),
            None,
            None,
            Some(n),
            Some(9),
        ],
        profile: vec![500; PROFILE],
    });
    ranks
        .functions
        .insert(names(&["sweep", "app"]), spreads(900 + n % 5));
    if rank.is_multiple_of(3) {
        ranks
            .functions
            .insert(names(&["third", "app"]), spreads(50));
    }
    ranks
        .objects
        .insert(names(&["grid", "heap"]), spreads(800 + n % 7));
    ranks.findings.insert(
        names(&["stride", "sweep", "app.c", "12", "grid"]),
        RankFinding {
            score: RankSpread::of(n % 11, &name),
            title: format!("title {}", n % 11),
            finding: format!("finding of {rank}"),
            advice: "advice".into(),
        },
    );
    ranks.heat.insert(
        "grid".into(),
        HeatRow {
            loads: vec![n; COLUMNS],
            distances: vec![2 * n; COLUMNS],
        },
    );
    ranks.warnings.insert("a warning".into(), 1);
    ranks.gaps.push(Gap {
        input: format!("trace.x{}", rank % 2),
        why: "died".into(),
    });
    ranks
}

fn tree(ranks: std::ops::Range<u32>, fanin: usize) -> Ranks {
    let mut level: Vec<Ranks> = ranks.map(of).collect();
    while level.len() > 1 {
        let mut above = Vec::new();
        let mut rest = level.into_iter();
        while let Some(mut first) = rest.next() {
            for other in rest.by_ref().take(fanin - 1) {
                first.merge(other).unwrap();
            }
            above.push(first);
        }
        level = above;
    }
    level.remove(0)
}

#[test]
fn every_tree_makes_the_same_bytes() {
    // More values than are kept as they are.
    let whole = tree(0..150, 150).to_bytes().unwrap();
    for fanin in [2, 3, 8] {
        assert!(tree(0..150, fanin).to_bytes().unwrap() == whole, "{fanin}");
    }
    let mut late = tree(70..150, 8);
    late.merge(tree(0..70, 5)).unwrap();
    assert!(late.to_bytes().unwrap() == whole);
    // The words of a finding are those of the first rank with the greatest score.
    assert_eq!(
        late.findings.values().next().unwrap().finding,
        "finding of 10"
    );
    assert_eq!(Ranks::of_bytes(&whole).unwrap(), late);
}

#[test]
fn traces_are_merged_once_and_blocks_agree() {
    let mut one = of(1);
    assert!(one.merge(of(1)).unwrap_err().contains("trace.1"));
    let other = Ranks {
        block: 4096,
        ..of(2)
    };
    assert!(of(3).merge(other).unwrap_err().contains("--block 4096"));
    let mut nothing = Ranks::default();
    nothing.merge(of(2)).unwrap();
    assert_eq!(nothing, of(2));
}

#[test]
fn files_that_are_no_results_say_so() {
    let bytes = of(0).to_bytes().unwrap();
    for (wrong, says) in [
        (&b""[..], "not a result"),
        (b"MGZPART8 and more", "not a result"),
        (b"MGZRANK0 and more", "another version"),
        (&bytes[..bytes.len() - 3], "damaged"),
        (&bytes[..9], "damaged"),
    ] {
        let said = Ranks::of_bytes(wrong).unwrap_err();
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn what_there_is_of_a_rank_does_not_grow_with_the_ranks() {
    let size = |ranks: u32| serde_json::to_vec(&tree(0..ranks, 8)).unwrap().len();
    let (few, many) = (size(1000), size(2000));
    // The result grows only by the rows of ranks.
    assert!((many - few) / 1000 < 400, "{few} {many}");
}

#[test]
fn an_uneven_rank_comes_first() {
    let mut all = Ranks::default();
    for rank in 0..8 {
        let mut one = of(rank);
        if rank == 5 {
            let name = name(rank);
            one.ranks[0].metrics[0] = Some(3000);
            let sweep = one.functions.values_mut().next().unwrap();
            sweep.loads = RankSpread::of(2900, &name);
        }
        all.merge(one).unwrap();
    }
    let document = view::document(&all);
    let text = view::findings_text(&document, 1);
    assert!(text.starts_with("1. one rank has more to do"), "{text}");
    assert!(text.contains("rank 5 of 8 executes 2.3"), "{text}");
    assert!(text.contains("sweep (2.5"), "{text}");
    // Ranks that the launcher started but that are missing here are reported.
    assert!(document.warnings.iter().any(|w| w.contains("8-1048575")));
    assert!(document.json().is_ok());
}
