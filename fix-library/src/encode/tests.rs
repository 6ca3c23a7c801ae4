//! Tests that plans are decoded unchanged, and damaged ones refused.

use super::*;
use mgz_fix_runtime::plan_format::PlanView;
use object::ObjectSymbol;
use proptest::prelude::*;

/// A plan in memory with the alignment that it has in a process.
#[repr(align(16))]
struct Section([u8; CAPACITY]);

fn section(bytes: &[u8]) -> Box<Section> {
    let mut section = Box::new(Section([0; CAPACITY]));
    section.0[..bytes.len()].copy_from_slice(bytes);
    section
}

fn frame(module: &str, offset: u64) -> Frame {
    Frame {
        module: module.to_owned(),
        offset,
    }
}

fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        (0..9u32).prop_map(Action::Pool),
        (0..9u32).prop_map(Action::HugePool),
        Just(Action::HugePages),
        (6..=16u32, 0..40u32).prop_map(|(align, lines)| Action::Pad {
            align: 1 << align,
            offset: 64 * lines
        }),
        Just(Action::Interleave),
        (0..5u32).prop_map(|node| Action::Bind { node }),
    ]
}

fn plans() -> impl Strategy<Value = Plan> {
    let name = prop_oneof![
        Just(""),
        Just("app"),
        Just("libx.so.1"),
        Just("libstdc++.so.6")
    ];
    let frames = prop::collection::vec((name, 0..4u64), 1..=4).prop_map(|frames| {
        frames
            .into_iter()
            .map(|(module, offset)| frame(module, offset))
            .collect()
    });
    let site = (frames, actions()).prop_map(|(frames, action)| SitePolicy { frames, action });
    (prop::collection::vec(site, 0..20), any::<bool>()).prop_map(|(mut sites, static_huge)| {
        let mut seen = Vec::new();
        sites.retain(|site: &SitePolicy| {
            let frames = own_frames(site).to_vec();
            let new = !seen.contains(&frames);
            seen.push(frames);
            new
        });
        Plan { sites, static_huge }
    })
}

/// Compares a record's policy with an action, with pools by the plan's numbers.
fn same_action(record: &SiteRecord, action: Action) -> bool {
    match action {
        Action::Pool(_) => record.kind == format::POOL,
        Action::HugePool(_) => record.kind == format::HUGE_POOL,
        Action::HugePages => record.kind == format::HUGE,
        Action::Pad { align, offset } => {
            (record.kind, record.align, record.offset) == (format::PAD, align, offset)
        }
        Action::Interleave => record.kind == format::INTERLEAVE,
        Action::Bind { node } => (record.kind, record.node) == (format::BIND, node),
    }
}

proptest! {
    #[test]
    fn plans_come_back(plan in plans()) {
        let bytes = section(&encode(&plan).unwrap());
        let view = PlanView::read(&bytes.0).unwrap();
        prop_assert_eq!(view.sites.len(), plan.sites.len());
        prop_assert_eq!(view.static_huge(), plan.static_huge);
        for site in &plan.sites {
            let frames = own_frames(site);
            let module = (0..view.modules())
                .find(|&index| view.module(index) == frames[0].module.as_bytes())
                .unwrap();
            let first = view.find(module as u16, frames[0].offset).unwrap();
            let found = view.sites[first..].iter().any(|record| {
                usize::from(record.frames) == frames.len()
                    && frames.iter().enumerate().all(|(place, frame)| {
                        record.offsets[place] == frame.offset
                            && view.module(record.modules[place].into()) == frame.module.as_bytes()
                    })
                    && same_action(record, site.action)
            });
            prop_assert!(found);
        }
    }

    #[test]
    fn damaged_plans_are_none(plan in plans(), at in any::<prop::sample::Index>(), change in 1..=255u8) {
        let mut bytes = encode(&plan).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        prop_assert!(PlanView::read(&section(&bytes).0).is_none());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), counts in any::<[u8; 4]>()) {
        // Corrects the checksum, so that the tables are read.
        if bytes.len() >= size_of::<Header>() {
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
            let length = bytes.len() as u32;
            bytes[12..16].copy_from_slice(&length.to_le_bytes());
            for (place, count) in counts.into_iter().enumerate() {
                let at = CHECKED_FROM + 4 * place;
                bytes[at..at + 4].copy_from_slice(&u32::from(count % 8).to_le_bytes());
            }
            let sum = checksum(&bytes[CHECKED_FROM..]);
            bytes[16..24].copy_from_slice(&sum.to_le_bytes());
        }
        if let Some(view) = PlanView::read(&section(&bytes).0) {
            (0..view.modules()).for_each(|index| {
                std::hint::black_box(view.module(index).len());
            });
        }
    }
}

fn one(frames: Vec<Frame>, action: Action) -> Plan {
    Plan {
        sites: vec![SitePolicy { frames, action }],
        static_huge: false,
    }
}

#[test]
fn impossible_plans_are_errors() {
    let pool = Action::Pool(0);
    assert_eq!(encode(&one(vec![], pool)), Err(Error::Frames(0)));
    let many = vec![frame("a", 1); 5];
    assert_eq!(encode(&one(many, pool)), Err(Error::Frames(5)));
    let any = vec![frame(ANY_MODULE, 1)];
    assert_eq!(encode(&one(any, pool)), Err(Error::AnySite));
    for (align, offset) in [(63, 0), (32, 0), (1 << 17, 0), (64, 8)] {
        let pad = Action::Pad { align, offset };
        let plan = one(vec![frame("a", 1)], pad);
        assert_eq!(encode(&plan), Err(Error::Pad { align, offset }));
    }
    let mut twice = one(vec![frame("a", 1)], pool);
    twice.sites.push(twice.sites[0].clone());
    assert_eq!(encode(&twice), Err(Error::Twice("a+0x1".to_owned())));
}

#[test]
fn the_image_has_the_plan() {
    let plain = one(vec![frame("a", 1)], Action::Pool(0));
    let cpp = one(
        vec![frame("libstdc++.so.6", 9), frame("a", 1)],
        Action::Pool(0),
    );
    for (plan, has_operators) in [(plain, false), (cpp, true)] {
        let image = shared_object(&plan).unwrap();
        let file = object::File::parse(&*image).unwrap();
        let data = file
            .section_by_name(format::SECTION)
            .unwrap()
            .data()
            .unwrap();
        assert!(PlanView::read(&section(data).0).is_some());
        let exported = |name: &[u8]| {
            let mut symbols = file.dynamic_symbols().filter(|s| s.is_definition());
            symbols.any(|s| s.name_bytes() == Ok(name))
        };
        assert!(exported(b"malloc"));
        assert_eq!(exported(b"_Znwm"), has_operators);
    }
}
