//! Tests of writing and reading sidecars, and of damaged ones.

use crate::sidecar::codec::{Element, Form, expand, width};
use crate::sidecar::macros::TableRow;
use crate::sidecar::read::split;
use crate::sidecar::write::{CHUNK, Content, Encoded, ROWS_PER_BATCH, Runs, SidecarParts};
use crate::sidecar::{
    Function, Header, Location, Loop, NO_RECORD, NONE, Origin, PtWrite, Record, Region, Sidecar,
    SidecarError, Site, SiteFlags, SiteKind, StoredColumn,
};
use mgz_abi::leb128::MAX_BYTES;
use mgz_abi::module_note::{Prelude, SIDECAR_VERSION};

fn small() -> Sidecar {
    Sidecar {
        id: [7; 16],
        header: Header {
            flavour: "soft".into(),
            ..Header::default()
        },
        functions: vec![Function {
            name: 0,
            left: NONE,
            start: 0x1000,
            end: 0x1100,
            clone_start: 0x9000,
            clone_end: 0x9200,
        }],
        sites: vec![Site {
            region: 0,
            location: 1,
            in_loop: 1,
            size: 8,
            ip: 0x1004,
            kind: 0,
            class: 2,
            a: 0,
            b: NO_RECORD,
            flags: SiteFlags::RMW,
            ..Site::default()
        }],
        regions: vec![Region {
            record_count: 1,
            site_count: 1,
            ..Region::default()
        }],
        records: vec![Record {
            slots: 1,
            ..Record::default()
        }],
        loops: vec![
            Loop {
                parent: 1,
                location: 1,
                header: 0x1004,
                ..Loop::default()
            },
            Loop {
                parent: NONE,
                location: NONE,
                header: 0x1000,
                ..Loop::default()
            },
        ],
        locations: vec![
            Location {
                function: 0,
                file: 1,
                line: 3,
                inlined_into: NONE,
            },
            Location {
                function: 0,
                file: 1,
                line: 4,
                inlined_into: 0,
            },
        ],
        strings: vec!["main".into(), "a.c".into()],
        map: vec![1, 2, 3],
        ..Sidecar::default()
    }
}

#[test]
fn a_sidecar_survives_the_round_trip() {
    let before = small();
    let after = Sidecar::from_bytes(&before.to_bytes().unwrap()).unwrap();
    assert_eq!(after.sites, before.sites);
    assert_eq!(after.functions, before.functions);
    assert_eq!(after.regions, before.regions);
    assert_eq!(after.loops, before.loops);
    assert_eq!(after.locations, before.locations);
    assert_eq!(after.strings, before.strings);
    assert_eq!(after.map, before.map);
    assert_eq!(after.id, before.id);
}

#[test]
fn an_address_map_is_read_alone() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), small().to_bytes().unwrap()).unwrap();
    let read = Sidecar::read_address_map(file.path()).unwrap();
    assert_eq!((read.map, read.id), (small().map, small().id));
    assert!(read.sites.is_empty() && read.functions.is_empty() && read.strings.is_empty());
    std::fs::write(file.path(), "no sidecar").unwrap();
    assert!(Sidecar::read_address_map(file.path()).is_err());
}

#[test]
fn numbers_of_all_sizes_come_back_in_every_form() {
    let wide = [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN, i64::MAX, 5];
    let check = |plain: Vec<u8>, encoded: [Vec<u8>; 2], size: usize| {
        for (numbers, is_delta) in encoded.iter().zip([false, true]) {
            assert_eq!(
                expand(numbers, wide.len() as u64, size, is_delta).as_ref(),
                Some(&plain),
                "{size} {is_delta}"
            );
            for rows in [0, wide.len() as u64 - 1, wide.len() as u64 + 1, u64::MAX] {
                assert_eq!(expand(numbers, rows, size, is_delta), None);
            }
            for len in 0..numbers.len() {
                assert_eq!(
                    expand(&numbers[..len], wide.len() as u64, size, is_delta),
                    None
                );
            }
        }
    };
    fn forms<T: Element>(elements: impl ExactSizeIterator<Item = T> + Clone) -> [Vec<u8>; 3] {
        [Form::Plain, Form::Varint, Form::Delta].map(|form| {
            let mut room = vec![0; elements.len() * MAX_BYTES];
            let bytes = form.encode(elements.clone(), T::default(), &mut room);
            room.truncate(bytes);
            room
        })
    }
    let [plain, encoded @ ..] = forms(wide.iter().copied());
    check(plain, encoded, 8);
    let [plain, encoded @ ..] = forms(wide.iter().map(|&n| n as u64));
    check(plain, encoded, 8);
    let [plain, encoded @ ..] = forms(wide.iter().map(|&n| (n ^ n >> 32) as u32));
    check(plain, encoded, 4);
    let [plain, encoded @ ..] = forms(wide.iter().map(|&n| (n ^ n >> 56) as u8));
    check(plain, encoded, 1);
    // Too large for the type, and for any type.
    assert_eq!(expand(&[0x80, 0x80, 0x80, 0x80, 0x10], 1, 4, false), None);
    assert_eq!(
        expand(
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            1,
            8,
            false
        ),
        None
    );
    assert_eq!(
        expand(
            &[
                0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0
            ],
            1,
            8,
            false
        ),
        None
    );
}

#[test]
fn rows_in_runs_are_those_of_one_table() {
    // Some runs are empty; others are longer than the part encoded at a time, or end with it.
    let lens = [
        0,
        3,
        CHUNK,
        0,
        0,
        CHUNK - 1,
        1,
        2 * CHUNK + 5,
        ROWS_PER_BATCH,
        0,
    ];
    let runs: Vec<Vec<Function>> = lens
        .iter()
        .map(|&len| {
            (0..len as u64)
                .map(|n| Function {
                    start: n * n,
                    end: n,
                    ..Function::default()
                })
                .collect()
        })
        .collect();
    let place = |run: usize, rows: &mut [Function]| {
        rows.iter_mut().for_each(|row| row.end += run as u64 * 1000)
    };
    let content = Content {
        functions: Runs::new(runs.iter().map(|run| &run[..]).collect(), place),
        ..Content::default()
    };
    assert_eq!(content.functions.chunks(), [0..3, 3..7, 7..8, 8..10]);
    // Other tables follow, also empty ones.
    let more = [Function {
        start: 7,
        end: 1 << 40,
        ..Function::default()
    }; 3];
    let last = Function {
        start: 255 * 255,
        end: 255 + 8000,
        ..Function::default()
    };
    let next = Content {
        functions: Runs::from(&more[..]).behind(last),
        ..Content::default()
    };
    let columns = Encoded::of(&[
        content.encode().unwrap(),
        Content::default().encode().unwrap(),
        next.encode().unwrap(),
    ])
    .unwrap();
    let read = Sidecar::from_bytes(
        &SidecarParts {
            id: [0; 16],
            header: &Header::default(),
            map: &[],
            columns: &columns,
        }
        .to_bytes()
        .unwrap(),
    )
    .unwrap();
    let wanted: Vec<Function> = runs
        .iter()
        .enumerate()
        .flat_map(|(number, run)| {
            run.iter().map(move |row| Function {
                end: row.end + number as u64 * 1000,
                ..*row
            })
        })
        .chain(more)
        .collect();
    assert!(read.functions == wanted);
}

#[test]
fn a_sidecar_that_does_not_get_its_name_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.mgza");
    let there = || std::fs::read_dir(folder.path()).unwrap().count();
    let (small, columns) = (small(), small().columns().unwrap());
    let parts = SidecarParts {
        id: small.id,
        header: &small.header,
        map: &[vec![1], vec![], vec![2, 3]],
        columns: &columns,
    };
    let beside = parts.write_beside(&path).unwrap();
    assert_eq!((there(), path.exists()), (1, false));
    drop(beside);
    assert_eq!(there(), 0);
    parts.write(&path).unwrap();
    assert_eq!(there(), 1);
    assert_eq!(std::fs::read(&path).unwrap(), small.to_bytes().unwrap());
}

#[test]
fn columns_of_the_version_s_first_files_are_read() {
    // Plain elements, in one frame or not compressed.
    let before = small();
    let mut header = Header {
        version: SIDECAR_VERSION,
        ..before.header.clone()
    };
    let mut body = Vec::new();
    fn old<R: TableRow>(table: &str, rows: &[R], header: &mut Header, body: &mut Vec<u8>) {
        for (field, (name, kind, _)) in R::FIELDS.iter().enumerate() {
            let mut raw = vec![0; rows.len() * width(kind).unwrap()];
            let mut numbers = vec![0; rows.len() * MAX_BYTES];
            let bytes = R::encode(rows, &R::default(), field, &mut numbers);
            numbers.truncate(bytes);
            match R::FIELDS[field].2 {
                Form::Plain => raw.copy_from_slice(&numbers),
                form => {
                    raw = expand(
                        &numbers,
                        rows.len() as u64,
                        width(kind).unwrap(),
                        form == Form::Delta,
                    )
                    .unwrap()
                }
            }
            let stored = if field % 2 == 0 {
                zstd::bulk::compress(&raw, 1).unwrap()
            } else {
                raw.clone()
            };
            let encoding = if field % 2 == 0 { "zstd" } else { "raw" };
            header.columns.push(StoredColumn {
                table: table.into(),
                name: (*name).into(),
                kind: (*kind).into(),
                rows: rows.len() as u64,
                encoding: encoding.into(),
                offset: body.len() as u64,
                bytes: stored.len() as u64,
                raw_bytes: raw.len() as u64,
            });
            body.extend(stored);
        }
    }
    old("functions", &before.functions, &mut header, &mut body);
    old("sites", &before.sites, &mut header, &mut body);
    old("regions", &before.regions, &mut header, &mut body);
    old("records", &before.records, &mut header, &mut body);
    old("ptwrites", &before.ptwrites, &mut header, &mut body);
    old("gathers", &before.gathers, &mut header, &mut body);
    old("loops", &before.loops, &mut header, &mut body);
    old("locations", &before.locations, &mut header, &mut body);
    for (table, name, kind, bytes) in [
        ("map", "map", "u8", &before.map[..]),
        ("strings", "text", "utf8", b"main\0a.c\0"),
    ] {
        let len = bytes.len() as u64;
        let column = StoredColumn {
            table: table.into(),
            name: name.into(),
            kind: kind.into(),
            encoding: "raw".into(),
            offset: body.len() as u64,
            bytes: len,
            raw_bytes: len,
            rows: len,
        };
        header.columns.push(column);
        body.extend(bytes);
    }
    let json = serde_json::to_vec(&header).unwrap();
    let mut file = small().to_bytes().unwrap()[..size_of::<Prelude>()].to_vec();
    file[24..32].copy_from_slice(&(json.len() as u64).to_le_bytes());
    file.extend(json);
    file.extend(body);
    let after = Sidecar::from_bytes(&file).unwrap();
    assert_eq!(
        (after.sites, after.functions, after.regions),
        (before.sites, before.functions, before.regions)
    );
    assert_eq!(
        (after.records, after.loops, after.locations),
        (before.records, before.loops, before.locations)
    );
    assert_eq!((after.strings, after.map), (before.strings, before.map));
}

#[test]
fn the_prelude_points_at_the_map() {
    let bytes = small().to_bytes().unwrap();
    let offset = u64::from_le_bytes(bytes[32..40].try_into().unwrap()) as usize;
    assert_eq!(offset % 8, 0);
    assert_eq!(&bytes[offset..offset + 3], &[1, 2, 3]);
}

#[test]
fn a_wild_index_is_refused() {
    let mut wild = small();
    wild.sites[0].function = 5;
    let error = Sidecar::from_bytes(&wild.to_bytes().unwrap()).unwrap_err();
    assert!(matches!(error, SidecarError::Damaged(_)), "{error}");
}

#[test]
fn loops_lead_outwards_and_to_what_there_is() {
    let with = |change: fn(&mut Sidecar)| {
        let mut sidecar = small();
        change(&mut sidecar);
        Sidecar::from_bytes(&sidecar.to_bytes().unwrap())
    };
    assert!(with(|s| s.loops[0].parent = NONE).is_ok());
    for wrong in [
        with(|s| s.sites[0].in_loop = 3),
        with(|s| s.loops[1].parent = 0),
        with(|s| s.loops[0].parent = 2),
        with(|s| s.loops[0].function = 1),
        with(|s| s.loops[0].location = 2),
    ] {
        assert!(matches!(wrong, Err(SidecarError::Damaged(_))));
    }
}

#[test]
fn files_of_before_there_were_loops_are_read() {
    let bytes = small().to_bytes().unwrap();
    let (_, mut header, body) = split(&bytes).unwrap();
    header
        .columns
        .retain(|c| c.table != "loops" && c.name != "in_loop");
    let mut json = serde_json::to_vec(&header).unwrap();
    let padded = (size_of::<Prelude>() + json.len()).next_multiple_of(8) - size_of::<Prelude>();
    json.resize(padded, b' ');
    let mut old = bytes[..size_of::<Prelude>()].to_vec();
    old[24..32].copy_from_slice(&(json.len() as u64).to_le_bytes());
    old.extend(json);
    old.extend(body);
    let read = Sidecar::from_bytes(&old).unwrap();
    assert_eq!((read.sites[0].in_loop, read.loops.len()), (0, 0));
    assert_eq!(read.sites[0].ip, small().sites[0].ip);
}

#[test]
fn regions_that_share_records_or_sites_are_refused() {
    // A chain of ranges that overlap by one: each range is short, and each record names the last
    // region that has it.
    let mut chained = small();
    chained.regions = (0..5)
        .map(|i| Region {
            first_record: 63 * i,
            record_count: 64,
            ..Region::default()
        })
        .collect();
    chained.records = (0..63 * 5 + 1)
        .map(|i: u32| Record {
            slots: 1,
            region: (i.saturating_sub(1) / 63).min(4),
            ..Record::default()
        })
        .collect();
    chained.sites.clear();
    let error = Sidecar::from_bytes(&chained.to_bytes().unwrap()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("region 1 names records or sites of another one"),
        "{error}"
    );

    let mut shared = small();
    shared.regions.push(Region {
        first_record: 1,
        site_count: 1,
        ..Region::default()
    });
    let error = Sidecar::from_bytes(&shared.to_bytes().unwrap()).unwrap_err();
    assert!(error.to_string().contains("region 1 names"), "{error}");

    let mut outside = small();
    outside.regions[0].site_count = 0;
    let error = Sidecar::from_bytes(&outside.to_bytes().unwrap()).unwrap_err();
    assert!(error.to_string().contains("site 0 is not among"), "{error}");
}

#[test]
fn a_part_that_its_record_does_not_have_is_refused() {
    let with = |part| Sidecar {
        ptwrites: vec![PtWrite {
            ip: 0x9004,
            record: 0,
            part,
        }],
        records: vec![Record {
            slots: 3,
            ..Record::default()
        }],
        ..small()
    };
    assert!(Sidecar::from_bytes(&with(4).to_bytes().unwrap()).is_ok());
    assert!(matches!(
        Sidecar::from_bytes(&with(5).to_bytes().unwrap()),
        Err(SidecarError::Damaged(_))
    ));
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = small().to_bytes().unwrap();
    for len in 0..bytes.len() {
        assert!(
            Sidecar::from_bytes(&bytes[..len]).is_err(),
            "{len} of {} bytes were accepted",
            bytes.len()
        );
    }
}

proptest::proptest! {
    #[test]
    fn no_damage_makes_the_reader_panic(at in 0usize..4096, value: u8) {
        let mut bytes = small().to_bytes().unwrap();
        let at = at % bytes.len();
        bytes[at] = value;
        let _ = Sidecar::from_bytes(&bytes);
    }
}

#[test]
fn kinds_and_origins_are_documented() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/sidecar.md");
    let page = std::fs::read_to_string(page).unwrap();
    let numbers = |head: &str| -> Vec<u8> {
        let table = page.split_once(head).expect(head).1;
        let rows = table.lines().skip(2).take_while(|row| !row.is_empty());
        let number = |row: &str| row[2..].split(' ').next()?.parse().ok();
        rows.filter_map(number).collect()
    };
    let kinds: Vec<u8> = SiteKind::ALL.iter().map(|&kind| kind as u8).collect();
    assert_eq!(numbers("| `kind` | address |"), kinds);
    let origins: Vec<u8> = Origin::ALL.iter().map(|&origin| origin as u8).collect();
    assert_eq!(numbers("| `origin` | the address comes from |"), origins);
}
