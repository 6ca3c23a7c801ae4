//! Sidecars of programs that were never built.

use mgz_annotations_schema::Sidecar;
use mgz_annotations_schema::sidecar::{Function, NO_RECORD, NONE, PtWrite, Record, Region, Site};

/// A sidecar with a record for each `ptwrite` at `shift + 24 n`; the load's address is the payload
/// plus `disp`.
pub fn sidecar(output: &str, build_id: &str, shift: u64, disp: i64, id_first: u32) -> Sidecar {
    let mut sidecar = Sidecar {
        functions: vec![Function {
            name: NONE,
            left: NONE,
            end: 0x1000,
            ..Function::default()
        }],
        ..Sidecar::default()
    };
    let header = &mut sidecar.header;
    header.flavour = "pt".into();
    header.output = output.into();
    header.id_first = id_first;
    header.input.build_id = build_id.into();
    sidecar.id[0] = disp as u8;
    sidecar.id[1] = id_first as u8;
    for n in 0..64u32 {
        let ip = shift + u64::from(n) * 24;
        sidecar.regions.push(Region {
            first_record: n,
            record_count: 1,
            first_site: n,
            site_count: 1,
            ..Region::default()
        });
        sidecar.records.push(Record {
            region: n,
            slots: 1,
            ip,
            clone_ip: ip,
        });
        sidecar.sites.push(Site {
            region: n,
            location: NONE,
            size: 8,
            ip,
            clone_ip: ip + 5,
            class: 2,
            disp,
            a: 0,
            b: NO_RECORD,
            ..Site::default()
        });
        sidecar.ptwrites.push(PtWrite {
            ip,
            record: n,
            part: 0,
        });
    }
    sidecar
}
