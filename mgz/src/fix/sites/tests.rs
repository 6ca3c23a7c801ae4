//! Remedies for the sites of findings, without and with known return addresses.

use super::*;
use serde_json::json;

fn cause(kind: &str) -> Cause {
    Cause {
        kind: kind.into(),
        ..Cause::default()
    }
}

fn frame(module: &str, offset: u64) -> Frame {
    Frame {
        module: module.into(),
        offset,
    }
}

/// The changes that a mechanism suggests.
fn changes(kind: &str) -> &'static [ProgramChange] {
    match kind {
        "list" | "tree" => &[ProgramChange::HugePages, ProgramChange::Pool],
        "gather" => &[ProgramChange::HugePages],
        "scattered" => &[ProgramChange::HugePages, ProgramChange::PoolOfSites],
        "false_sharing" => &[ProgramChange::PadBlocks],
        "conflicts" => &[ProgramChange::ShiftBlocks],
        _ => &[],
    }
}

fn candidates(placing: &mut Placing, kind: &str, finding: &Value) -> Vec<Candidate> {
    placing.candidates(&cause(kind), changes(kind), finding)
}

/// A finding with the sites of nodes and of a large array.
fn finding() -> Value {
    json!({"allocation_sites": [
        {"object": "grow a.c:7", "A_pct": 60.0, "largest_bytes": 48,
         "return_addresses": ["app+0x1234 < libx.so.1+0x99", "app+0x1250"]},
        {"object": "load a.c:3", "A_pct": 30.0, "largest_bytes": 64 << 20,
         "return_addresses": ["app+0x1300"]},
    ]})
}

const ONE_NODE: Surroundings = Surroundings {
    threads: 4,
    nodes: 1,
};

#[test]
fn nodes_of_a_finding_get_a_pool_of_their_own() {
    let mut placing = Placing::new("app", ONE_NODE);
    let found = candidates(&mut placing, "list", &finding());
    let [pool] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(pool.remedy, "pool of grow a.c:7");
    let sites = &pool.recipe.library.sites;
    let outer = vec![frame(EXECUTABLE, 0x1234), frame("libx.so.1", 0x99)];
    assert_eq!(sites[0].frames, outer);
    assert_eq!(sites[1].frames, [frame(EXECUTABLE, 0x1250)]);
    assert!(sites.iter().all(|s| s.action == Action::HugePool(1)));
    // The nodes of the other finding are not included.
    let other = candidates(&mut placing, "tree", &finding());
    assert_eq!(other[0].recipe.library.sites[0].action, Action::HugePool(2));
    assert!(candidates(&mut placing, "streaming", &finding()).is_empty());
    let huge = placing.huge_pages().unwrap();
    assert_eq!(huge.remedy, "huge-pages of load a.c:3");
    assert_eq!(huge.recipe.library.sites.len(), 1);
    assert!(!huge.recipe.library.static_huge);
    mgz_fix_library::shared_object(&pool.recipe.library).unwrap();
    mgz_fix_library::shared_object(&huge.recipe.library).unwrap();
}

#[test]
fn without_return_addresses_all_blocks_are_placed() {
    let mut placing = Placing::new("app", ONE_NODE);
    let found = candidates(&mut placing, "list", &json!({}));
    assert_eq!(found[0].remedy, "pool of all heap blocks");
    assert!(candidates(&mut placing, "gather", &finding()).is_empty());
    assert!(candidates(&mut placing, "scattered", &json!({})).is_empty());
    assert!(candidates(&mut placing, "false_sharing", &json!({})).is_empty());
    let huge = placing.huge_pages().unwrap();
    assert_eq!(huge.remedy, "huge-pages of all data");
    assert!(huge.recipe.library.static_huge);
}

#[test]
fn blocks_that_threads_write_are_padded_and_conflicting_ones_shifted() {
    let mut placing = Placing::new("app", ONE_NODE);
    let found = candidates(&mut placing, "false_sharing", &finding());
    assert_eq!(found[0].remedy, "padding of grow a.c:7");
    let action = found[0].recipe.library.sites[0].action;
    let apart = Action::Pad {
        align: 128,
        offset: 0,
    };
    assert_eq!(action, apart);
    let found = candidates(&mut placing, "conflicts", &finding());
    let sites = &found[0].recipe.library.sites;
    let steps: Vec<Action> = sites.iter().map(|s| s.action).collect();
    let step = |lines: u32| Action::Pad {
        align: 4096,
        offset: 64 * lines,
    };
    assert_eq!(steps, [step(3), step(3), step(5)]);
    mgz_fix_library::shared_object(&found[0].recipe.library).unwrap();
    assert!(placing.huge_pages().is_none());
}

#[test]
fn large_blocks_are_interleaved_among_several_nodes_only() {
    let system = tempfile::tempdir().unwrap();
    let folder = system.path().join("devices/system/node");
    std::fs::create_dir_all(&folder).unwrap();
    let of = |list: &str, threads: usize| {
        std::fs::write(folder.join("has_memory"), list).unwrap();
        let manifest = json!({"threads": vec![json!({}); threads]});
        Surroundings::of(&manifest, system.path())
    };
    assert_eq!(of("0-1,4\n", 2).nodes, 3);
    for (list, threads, expected) in [("0\n", 4, 0), ("0-1\n", 4, 1), ("0-1\n", 1, 0), ("?", 4, 0)]
    {
        let mut placing = Placing::new("app", of(list, threads));
        let found = candidates(&mut placing, "streaming", &finding());
        assert_eq!(found.len(), expected, "{list}");
        if let [one] = &found[..] {
            assert_eq!(one.remedy, "interleaving of load a.c:3");
            assert_eq!(one.recipe.library.sites[0].action, Action::Interleave);
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(Surroundings::of(&json!({}), system.path()).nodes, 1);
}

#[test]
fn return_addresses_that_are_none_are_left_out() {
    assert_eq!(frames("", "app"), None);
    assert_eq!(frames("app", "app"), None);
    assert_eq!(frames("app+0xzz", "app"), None);
    let deep = ["app+0x1"; 9].join(" < ");
    assert_eq!(frames(&deep, "app").unwrap().len(), MAX_FRAMES);
    assert_eq!(frames("a+0x1+0x2", "app").unwrap(), [frame("a+0x1", 2)]);
}
