// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What people see of waves: errors that name kernel, wave and address; where all waves are; profiles and traces.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may panic; that is how it fails"
)]

mod common;

use std::sync::{Arc, Mutex};

use common::fixture::Fixture;
use common::kernel::*;
use gpu_model::asic::{Asic, GFX906, GFX90A};
use gpu_model::control::answer;
use gpu_model::waves::watch::Filter;

const BOTH: [&Asic; 2] = [&GFX90A, &GFX906];

/// What failed waves are said to have come to.
fn mistakes(f: &mut Fixture) -> Vec<String> {
    let reply = answer(&mut f.b.gpu, r#"{"cmd":"trace"}"#);
    let records = reply["records"].as_array().unwrap();
    let errors = records.iter().filter(|r| r["packet"] == "USER_ERROR");
    let texts = errors.map(|r| r["text"].as_str().unwrap().to_owned());
    texts.filter(|text| text.contains("wave: ")).collect()
}

#[test]
fn failures_name_kernel_wave_and_address() {
    if without_llvm("failures") {
        return;
    }
    for asic in BOTH {
        // The second wave of the fourth group comes to an instruction that is none.
        let program = "v_readfirstlane_b32 s4, v0\ns_cmp_lg_u32 s4, 64\ns_cbranch_scc1 end\n\
            s_cmp_lg_u32 s2, 3\ns_cbranch_scc1 end\n.long 0xbfff0000\nend: s_endpgm";
        for name in [None, Some("saxpy")] {
            let mut f = fixture(asic, 1, false, false);
            let kernel = Launch::new(program, 128, 128 * 8);
            if let Some(name) = name {
                name_kernel(&f, name);
            }
            launch(&mut f, asic, &kernel);
            let texts = mistakes(&mut f);
            let [text] = &texts[..] else {
                panic!("{}: one wave has failed: {texts:?}", asic.name);
            };
            let entry = f.va + CODE + 256;
            let title = match name {
                Some(name) => format!("kernel {name}"),
                None => format!("the kernel at {entry:#x}"),
            };
            let want = format!(
                "in {title}, wave 1 of group [3, 0, 0], PC {:#x}, on",
                entry + 20
            );
            assert!(text.contains(&want), "{}: {text} lacks {want}", asic.name);
            assert!(text.contains("illegal instruction"), "{text}");

            let reply = answer(&mut f.b.gpu, r#"{"cmd":"program-errors"}"#);
            assert_eq!(reply["total"], 1);
            let error = &reply["errors"][0];
            assert_eq!(error["kind"], "illegal");
            assert_eq!(error["kernel"], serde_json::json!(name));
            assert_eq!(error["entry"], entry);
            assert_eq!(error["pc"], entry + 20);
            assert_eq!(error["pasid"], 0x31);
            assert_eq!(error["group"], serde_json::json!([3, 0, 0]));
            assert_eq!(error["wave"], 1);
            assert_eq!(error["va"], serde_json::Value::Null);
            // The code object begins two pages before the kernel's.
            let base = name.map(|_| f.va + CODE - 0x2000);
            assert_eq!(error["object"]["base"], serde_json::json!(base));
            let reply = answer(&mut f.b.gpu, r#"{"cmd":"program-errors","from":1}"#);
            assert_eq!(reply["errors"], serde_json::json!([]));
        }
    }
}

/// A store where nothing is mapped.
#[test]
fn failures_are_listed_with_the_address_that_was_accessed() {
    if without_llvm("addresses of failures") {
        return;
    }
    let program = "s_nop 0\nv_mov_b32 v2, 0x1000\nv_mov_b32 v3, 0x7123\nglobal_store_dword v[2:3], v0, off\ns_endpgm";
    let mut f = fixture(&GFX90A, 1, false, false);
    name_kernel(&f, "stores");
    launch(&mut f, &GFX90A, &Launch::new(program, 64, 64));
    let reply = answer(&mut f.b.gpu, r#"{"cmd":"program-errors"}"#);
    let error = &reply["errors"][0];
    assert_eq!(
        (&error["kind"], &error["kernel"]),
        (&"memory".into(), &"stores".into())
    );
    assert_eq!(error["va"], 0x7123_0000_1000u64);
    let offset = error["pc"].as_u64().unwrap() - (f.va + CODE + 256);
    assert_eq!(offset, 20, "{reply}");
}

/// Of two waves each reads what the other one has written.
fn exchange(between: &str) -> Launch {
    let program = format!(
        "v_lshlrev_b32 v1, 2, v0\nv_xor_b32 v2, 0x1fc, v1\nds_write_b32 v1, v0\n\
         s_waitcnt lgkmcnt(0)\n{between}\nds_read_b32 v3, v2\ns_endpgm"
    );
    Launch {
        lds: 512,
        ..Launch::new(&program, 128, 512)
    }
}

#[test]
fn the_checker_finds_races_of_kernels_once() {
    if without_llvm("checker of LDS") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 2, false, false);
        name_kernel(&f, "meets");
        let dispatch = |f: &mut Fixture, between: &str| {
            f.b.set64(f.bus + DONE + 8, 1);
            launch(f, asic, &exchange(between));
            assert!(is_done(f));
            let reply = answer(&mut f.b.gpu, r#"{"cmd":"program-errors"}"#);
            reply["errors"].as_array().unwrap().clone()
        };
        let check = |f: &mut Fixture, on: bool| {
            let request = format!(r#"{{"cmd":"check","on":{on}}}"#);
            assert_eq!(answer(&mut f.b.gpu, &request)["ok"], true);
        };
        // Nobody checks.
        assert!(dispatch(&mut f, "s_nop 0").is_empty());
        check(&mut f, true);
        assert!(dispatch(&mut f, "s_barrier").is_empty(), "{}", asic.name);
        let found = dispatch(&mut f, "s_nop 0");
        let races: Vec<_> = found.iter().filter(|e| e["kind"] == "lds-race").collect();
        let entry = f.va + CODE + 256;
        let mut pairs = Vec::new();
        for race in races {
            assert_eq!(race["kernel"], "meets");
            let waves = (race["wave"].as_u64(), race["other"]["wave"].as_u64());
            assert!(
                waves == (Some(0), Some(1)) || waves == (Some(1), Some(0)),
                "{race}"
            );
            assert!(race["va"].as_u64().unwrap() < 512);
            let offset = |pc: &serde_json::Value| pc.as_u64().unwrap() - entry;
            pairs.push((offset(&race["pc"]), offset(&race["other"]["pc"])));
        }
        pairs.sort_unstable();
        // Of four groups each pair once.  Whoever reads last finds the other one's write; a write after a read may be found.
        let one_way = [(28, 12)];
        assert!(
            pairs == one_way || pairs == [(12, 28), (28, 12)],
            "{}: {pairs:?}",
            asic.name
        );
        // What was found is not found again, before the checker is switched on anew.
        assert_eq!(dispatch(&mut f, "s_nop 0").len(), found.len());
        check(&mut f, false);
        assert_eq!(dispatch(&mut f, "s_nop 0").len(), found.len());
        check(&mut f, true);
        assert!(dispatch(&mut f, "s_nop 0").len() > found.len());
        f.b.no_errors();
    }
}

/// Two waves of each group: the first waits at the barrier, the second counts for ever with one lane.
const LOOP: &str = "v_readfirstlane_b32 s4, v0\ns_cmp_lg_u32 s4, 0\ns_cbranch_scc1 second\n\
    s_barrier\ns_endpgm\nsecond: s_mov_b64 exec, 1\nagain: v_add_u32 v1, 1, v1\n\
    s_nop 0\ns_branch again";

#[test]
fn waves_are_shown_where_they_are() {
    if without_llvm("waves") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 2, false, false);
        name_kernel(&f, "spin");
        submit(&mut f, asic, &Launch::new(LOOP, 128, 256));
        f.b.run_steps(200);
        let reply = answer(&mut f.b.gpu, r#"{"cmd":"waves"}"#);
        assert_eq!(reply["ok"], true);
        assert_eq!(reply["total"], 4);
        let waves = reply["waves"].as_array().unwrap();
        let entry = f.va + CODE + 256;
        let mut seats = Vec::new();
        for (number, wave) in waves.iter().enumerate() {
            assert_eq!(wave["kernel"], "spin", "{}", asic.name);
            assert_eq!(wave["entry"], entry);
            assert_eq!(wave["object"]["base"], f.va + CODE - 0x2000);
            assert_eq!(wave["pasid"], 0x31);
            assert_eq!(wave["group"], serde_json::json!([number / 2, 0, 0]));
            assert_eq!(wave["wave"], number % 2);
            let pc = wave["pc"].as_u64().unwrap() - entry;
            let text = wave["instruction"].as_str().unwrap();
            if number % 2 == 0 {
                // Behind the barrier at 12.
                assert_eq!((pc, text), (16, "s_endpgm"));
                assert_eq!(wave["state"], "barrier");
                assert_eq!(wave["exec"], u64::MAX);
            } else {
                let want = match pc {
                    24 => "v_add_u32_e32 v1, 1, v1",
                    28 => "s_nop 0",
                    32 => "s_branch 65533",
                    other => panic!("a wave at {other}"),
                };
                assert_eq!(text, want);
                assert_eq!(wave["state"], "ready");
                assert_eq!(wave["exec"], 1);
            }
            seats.push(wave["seat"].to_string());
        }
        seats.sort();
        seats.dedup();
        assert_eq!(seats.len(), 4, "each wave has a seat of its own");

        // Those of other kernels are left out, and what is too much is counted.
        for (request, total, listed) in [
            (r#"{"cmd":"waves","kernel":"other"}"#, 0, 0),
            (r#"{"cmd":"waves","kernel":"pi","max":3}"#, 4, 3),
        ] {
            let reply = answer(&mut f.b.gpu, request);
            assert_eq!(reply["total"], total, "{request}");
            assert_eq!(
                reply["waves"].as_array().unwrap().len(),
                listed,
                "{request}"
            );
        }

        // Nobody looks any more, so they go on.
        assert!(!f.b.gpu.waves.dispatcher.is_looked_at());
        assert!(f.b.gpu.waves.dispatcher.has_work());
        f.b.no_errors();
    }
}

/// Looking makes those who execute give their groups back, whatever their number.
#[test]
fn waves_on_threads_stand_still_while_somebody_looks() {
    if without_llvm("waves on threads") {
        return;
    }
    let asic = &GFX90A;
    let mut f = fixture(asic, 2, false, false);
    name_kernel(&f, "spin");
    f.b.gpu.waves.spawn(2).unwrap();
    submit(&mut f, asic, &Launch::new(LOOP, 128, 256));
    f.b.run_steps(50);
    let dispatcher = Arc::clone(&f.b.gpu.waves.dispatcher);
    let mut places = std::collections::HashSet::new();
    // The waves that count are at one of three instructions whenever they are looked at, and at each in the end.
    while places.len() < 6 {
        let look = dispatcher.look();
        let seen: Vec<_> = look.waves.iter().map(|w| (w.spot, w.exec)).collect();
        for (spot, _) in seen
            .iter()
            .filter(|(spot, exec)| spot.wave == 1 && *exec == 1)
        {
            places.insert((spot.group, spot.pc));
        }
        drop(look);
        f.b.run_steps(1);
    }
}

/// Stores to LDS, all lanes in one bank; counts to three; stores its ids.
const COUNTS: &str = "v_lshlrev_b32 v1, 7, v0\nds_write_b32 v1, v0\ns_movk_i32 s4, 3\n\
    again: s_sub_u32 s4, s4, 1\ns_cmp_lg_u32 s4, 0\ns_cbranch_scc1 again\n\
    s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\nv_lshlrev_b32 v2, 2, v0\n\
    global_store_dword v2, v0, s[4:5]\ns_endpgm";

fn counting(f: &mut Fixture, asic: &Asic) {
    name_kernel(f, "counts");
    let mut kernel = Launch::new(COUNTS, 64, 256);
    kernel.lds = 8192;
    launch(f, asic, &kernel);
    assert!(is_done(f));
}

#[test]
fn a_profile_counts_what_kernels_execute() {
    if without_llvm("profile") {
        return;
    }
    for asic in BOTH {
        let mut f = fixture(asic, 2, false, false);
        let start = r#"{"cmd":"profile-start","kernel":"count"}"#;
        assert_eq!(answer(&mut f.b.gpu, start)["ok"], true);
        counting(&mut f, asic);
        assert_eq!(
            answer(&mut f.b.gpu, r#"{"cmd":"profile-stop"}"#)["ok"],
            true
        );
        let reply = answer(&mut f.b.gpu, r#"{"cmd":"profile","top":4}"#);
        assert_eq!(reply["running"], false);
        let kernels = reply["kernels"].as_array().unwrap();
        assert_eq!(kernels.len(), 1, "{reply}");
        let (kernel, entry) = (&kernels[0], f.va + CODE + 256);
        assert_eq!(kernel["kernel"], "counts");
        assert_eq!(kernel["entry"], entry);
        // Four waves of 17 instructions.
        assert_eq!(kernel["instructions"], 68);
        let class = |count: u64, loaded: u64, stored: u64, conflicts: u64| {
            serde_json::json!({
                "instructions": 4 * count, "loaded": 4 * loaded, "stored": 4 * stored,
                "conflicts": 4 * conflicts,
            })
        };
        let classes = serde_json::json!({
            "scalar": class(7, 0, 0, 0),
            "control": class(5, 0, 0, 0),
            "scalar-memory": class(1, 8, 0, 0),
            "vector": class(2, 0, 0, 0),
            "lds": class(1, 0, 256, 62),
            "global": class(1, 0, 256, 0),
        });
        assert_eq!(kernel["classes"], classes, "{}", asic.name);
        let place = |offset: u64, count: u64, conflicts: u64, instruction: &str| {
            serde_json::json!({
                "pc": entry + offset, "count": count, "conflicts": conflicts,
                "instruction": instruction,
            })
        };
        let top = serde_json::json!([
            place(16, 12, 0, "s_sub_u32 s4, s4, 1"),
            place(20, 12, 0, "s_cmp_lg_u32 s4, 0"),
            place(24, 12, 0, "s_cbranch_scc1 65533"),
            place(0, 4, 0, "v_lshlrev_b32_e32 v1, 7, v0"),
        ]);
        assert_eq!(kernel["top"], top, "{}", asic.name);

        // Nothing is added when it has ended, nor to one of other kernels, which forgets the last one.
        f.b.set64(f.bus + DONE + 8, 1);
        counting(&mut f, asic);
        let again = answer(&mut f.b.gpu, r#"{"cmd":"profile","top":4}"#);
        assert_eq!(again["kernels"], reply["kernels"]);
        answer(&mut f.b.gpu, r#"{"cmd":"profile-start","kernel":"other"}"#);
        f.b.set64(f.bus + DONE + 8, 1);
        counting(&mut f, asic);
        let other = answer(&mut f.b.gpu, r#"{"cmd":"profile"}"#);
        assert_eq!(other["running"], true);
        assert_eq!(other["kernels"], serde_json::json!([]));
        f.b.no_errors();
    }
}

/// A file in memory.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_trace_has_the_instructions_of_the_waves_that_were_asked_for() {
    if without_llvm("trace of instructions") {
        return;
    }
    let asic = &GFX90A;
    let traced = |filter: Filter| {
        let mut f = fixture(asic, 2, false, false);
        let file = Shared::default();
        let to = Box::new(file.clone());
        f.b.gpu.waves.dispatcher.watch.trace(filter, to);
        counting(&mut f, asic);
        let bytes = file.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    };
    let all = "ffffffffffffffff";
    let text = traced(Filter::default().waves("1,0,0:0").unwrap());
    let lines: Vec<&str> = text.lines().collect();
    let want = [
        format!("counts 1,0,0:0 +0x0 exec={all} v_lshlrev_b32_e32 v1, 7, v0 ; v1[0]=0x0"),
        format!("counts 1,0,0:0 +0x4 exec={all} ds_write_b32 v1, v0"),
        format!("counts 1,0,0:0 +0xc exec={all} s_movk_i32 s4, 0x3 ; s4=0x3"),
        format!("counts 1,0,0:0 +0x10 exec={all} s_sub_u32 s4, s4, 1 ; s4=0x2"),
    ];
    assert_eq!(lines[..4], want);
    assert_eq!(lines.len(), 17);
    assert_eq!(
        lines[16],
        format!("counts 1,0,0:0 +0x34 exec={all} s_endpgm")
    );

    // All groups; another kernel; a wave that no group has.
    assert_eq!(traced(Filter::default()).lines().count(), 68);
    let of = |kernel: &str| Filter {
        kernel: Some(kernel.into()),
        ..Filter::default()
    };
    assert_eq!(traced(of("oun")).lines().count(), 68);
    assert_eq!(traced(of("other")), "");
    assert_eq!(traced(Filter::default().waves("1").unwrap()), "");
}
