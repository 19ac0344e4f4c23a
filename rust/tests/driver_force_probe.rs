// SPDX-License-Identifier: GPL-2.0

//! The module parameter `force_probe`.

use kernel::prelude::*;

use crate::driver::force_probe::{
    decide,
    malformed,
    Decision, //
};

#[kunit_tests(rkfd_force_probe)]
mod suite {
    use super::*;

    #[test]
    fn an_empty_list_names_nobody() {
        for list in [&b""[..], b",", b" , ,"] {
            assert_eq!(decide(list, 0x740f), Decision::Unnamed);
            assert_eq!(decide(list, 0), Decision::Unnamed);
            assert_eq!(malformed(list), None);
        }
    }

    #[test]
    fn ids_are_hexadecimal_with_or_without_prefix() {
        for list in [
            &b"740f"[..],
            b"0x740f",
            b"0X740F",
            b"66a1,740F",
            b" 740f ,66a1",
            b"66a1,740f,740f",
        ] {
            assert_eq!(decide(list, 0x740f), Decision::Forced);
            assert_eq!(decide(list, 0x7410), Decision::Unnamed);
            assert_eq!(malformed(list), None);
        }
        // Decimal 29711 is 0x740f.
        assert_eq!(decide(b"29711", 0x740f), Decision::Unnamed);
    }

    #[test]
    fn a_star_names_all() {
        assert_eq!(decide(b"*", 0x66a1), Decision::Forced);
        assert_eq!(decide(b"66a1,*", 0x740f), Decision::Forced);
        assert_eq!(decide(b"!*", 0x66a1), Decision::Forbidden);
    }

    #[test]
    fn forbidding_wins_in_any_order() {
        for list in [
            &b"!740f"[..],
            b"!0x740f,66a1",
            b"740f,!740f",
            b"!740f,740f",
            b"*,!740f",
            b"740f,!*",
        ] {
            assert_eq!(decide(list, 0x740f), Decision::Forbidden);
        }
        assert_eq!(decide(b"!740f", 0x66a1), Decision::Unnamed);
        assert_eq!(decide(b"*,!740f", 0x66a1), Decision::Forced);
    }

    #[test]
    fn what_is_no_id_is_pointed_out_and_names_nobody() {
        for (list, entry) in [
            (&b"74 0f"[..], &b"74 0f"[..]),
            (b"740f,gfx90a", b"gfx90a"),
            (b"1740f", b"1740f"),
            (b"+740f", b"+740f"),
            (b"-1", b"-1"),
            (b"0x", b"0x"),
            (b"!", b"!"),
            (b"!!740f", b"!!740f"),
            (b"\xff\xfe", b"\xff\xfe"),
        ] {
            assert_eq!(malformed(list), Some(entry));
            assert_eq!(decide(entry, 0x740f), Decision::Unnamed);
            assert_eq!(decide(entry, 0xffff), Decision::Unnamed);
        }
    }
}
