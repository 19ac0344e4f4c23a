// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What people see of waves: errors that name kernel, wave and address.

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
