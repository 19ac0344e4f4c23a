// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What people see of waves: errors that name kernel, wave and address; where all waves are.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may panic; that is how it fails"
)]

mod common;

use common::fixture::Fixture;
use common::kernel::*;
use gpu_model::asic::{Asic, GFX906, GFX90A};
use gpu_model::control::answer;

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
        }
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
    let dispatcher = std::sync::Arc::clone(&f.b.gpu.waves.dispatcher);
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
