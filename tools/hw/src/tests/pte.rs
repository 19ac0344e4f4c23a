// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Page tables: entries mean what was put in, and a walk finds what was mapped.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::hw::pte::{
    self, Access, Aperture, Entry, Flavour, Level, Meaning, Mtype, PageAttrs, NO_RETRY,
};

fn flavour() -> impl Strategy<Value = Flavour> {
    prop_oneof![Just(Flavour::Plain), Just(Flavour::TranslateFurther)]
}

fn aperture() -> impl Strategy<Value = Aperture> {
    prop_oneof![
        Just(Aperture::Vram),
        any::<bool>().prop_map(|snooped| Aperture::System { snooped }),
    ]
}

fn attrs() -> impl Strategy<Value = PageAttrs> {
    let mtype = prop_oneof![
        Just(Mtype::Nc),
        Just(Mtype::Rw),
        Just(Mtype::Cc),
        Just(Mtype::Uc)
    ];
    (aperture(), any::<[bool; 3]>(), mtype, 0u32..32).prop_map(
        |(aperture, [read, write, execute], mtype, fragment)| PageAttrs {
            aperture,
            access: Access {
                read,
                write,
                execute,
            },
            mtype,
            fragment,
        },
    )
}

/// Tables of a toy device: address of a table to its entries.
type Tables = HashMap<u64, [Entry; 512]>;

/// Maps one page by hand, level by level, with tables at made-up addresses.
fn map(tables: &mut Tables, flavour: Flavour, va: u64, leaf: Level, entry: Entry) {
    let mut table = 0x1000;
    for level in Level::ALL {
        let entries = tables.entry(table).or_insert([Entry::EMPTY; 512]);
        let slot = &mut entries[level.index(va)];
        if level == leaf {
            *slot = entry;
            return;
        }
        table = match flavour.decode(level, *slot) {
            Meaning::Table { pa, .. } => pa,
            _ => {
                let pa = 0x1000 * (tables.len() as u64 + 1);
                let pointer = flavour.table(level, pa, Aperture::Vram).expect("aligned");
                tables
                    .entry(table)
                    .and_modify(|t| t[level.index(va)] = pointer);
                pa
            }
        };
    }
}

/// Translates as hardware does.
fn walk(tables: &Tables, flavour: Flavour, va: u64) -> Option<u64> {
    let mut table = 0x1000;
    for level in Level::ALL {
        match flavour.decode(level, tables.get(&table)?[level.index(va)]) {
            Meaning::Table { pa, .. } => table = pa,
            Meaning::Page { pa, .. } => return Some(pa | (va & (level.span() - 1))),
            _ => return None,
        }
    }
    None
}

#[test]
fn entries_print_their_flags() {
    assert_eq!(NO_RETRY.to_string(), "0x0008000000000003 V S T");
    assert_eq!(Entry::EMPTY.to_string(), "0x0000000000000000");
}

#[test]
fn gart_pages_are_snooped_system_memory() {
    let entry = pte::gart(0x0000_7FFF_1234_5000, Mtype::Uc).map(Entry::raw);
    assert_eq!(entry, Ok(0x0600_7FFF_1234_5077));
    assert!(pte::gart(0x800, Mtype::Uc).is_err());
}

#[test]
fn fragments_beyond_the_field_are_cut() {
    let attrs = |fragment| PageAttrs {
        aperture: Aperture::Vram,
        access: Access::RWX,
        mtype: Mtype::Nc,
        fragment,
    };
    for (fragment, field) in [(31, 31), (32, 31), (u32::MAX, 31)] {
        let entry = Flavour::Plain.page(Level::Ptb, 0, attrs(fragment));
        assert_eq!(entry.map(|entry| (entry.raw() >> 7) & 0x1f), Ok(field));
    }
    assert_eq!(pte::fragment(0, 0, 1 << 43), 31);
    assert_eq!(pte::fragment(0, 0, 1 << 44), 31);
    assert_eq!(pte::fragment(0, 0, 1 << 42), 30);
}

#[test]
fn vram_addresses_stay_below_the_limit() {
    assert_eq!(pte::vram_pa(0x1000, 0x8000_0000), Some(0x8000_1000));
    assert_eq!(pte::vram_pa(1 << 48, 0), None);
    assert_eq!(pte::vram_pa(u64::MAX, 1), None);
}

proptest! {
    #[test]
    fn pages_round_trip(flavour in flavour(), level in 1usize..4, page in 0u64..1 << 36, attrs in attrs()) {
        let level = Level::ALL[level];
        let pa = (page << 12) & !(level.span() - 1);
        let entry = flavour.page(level, pa, attrs).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(flavour.decode(level, entry), Meaning::Page { pa, attrs });
        prop_assert!(entry.is_valid());
        prop_assert!(!entry.is_no_retry());
    }

    #[test]
    fn tables_round_trip(flavour in flavour(), level in 0usize..3, table in 0u64..1 << 42, aperture in aperture()) {
        let level = Level::ALL[level];
        let pa = table << 6;
        let entry = flavour.table(level, pa, aperture).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(flavour.decode(level, entry), Meaning::Table { pa, aperture });
    }

    #[test]
    fn any_entry_has_a_meaning(flavour in flavour(), level in 0usize..4, raw: u64) {
        let level = Level::ALL[level];
        match flavour.decode(level, Entry::from_raw(raw)) {
            Meaning::Page { pa, .. } => {
                prop_assert!(level.may_be_page());
                prop_assert_eq!(pa % level.span(), 0);
                prop_assert!(pa < 1 << 48);
            }
            Meaning::Table { pa, .. } => {
                prop_assert!(level.child().is_some());
                prop_assert!(pa < 1 << 48);
            }
            Meaning::Invalid | Meaning::Prt => prop_assert_eq!(raw & 1, 0),
            Meaning::NoRetry => prop_assert_eq!(level, Level::Ptb),
            Meaning::Malformed => prop_assert_eq!(raw & 1, 1),
        }
        prop_assert!(!Entry::from_raw(raw).to_string().is_empty());
    }

    #[test]
    fn a_walk_finds_what_was_mapped(flavour in flavour(), level in 1usize..4, va in 0u64..1 << 47, page in 0u64..1 << 20, attrs in attrs()) {
        let leaf = Level::ALL[level];
        let pa = (page << 12) & !(leaf.span() - 1);
        let mut tables = Tables::new();
        let entry = flavour.page(leaf, pa, attrs).map_err(|e| TestCaseError::fail(e.to_string()))?;
        map(&mut tables, flavour, va, leaf, entry);
        prop_assert_eq!(walk(&tables, flavour, va), Some(pa | (va & (leaf.span() - 1))));
        // The neighbour in the same table is not mapped.
        prop_assert_eq!(walk(&tables, flavour, va ^ leaf.span()), None);
    }

    #[test]
    fn indices_and_offset_make_up_the_address(va in 0u64..1 << 48) {
        let mut sum = va & 0xFFF;
        for level in Level::ALL {
            sum |= (level.index(va) as u64) << level.shift();
        }
        prop_assert_eq!(sum, va);
    }

    #[test]
    fn the_chosen_page_fits_and_no_larger_one_does(va in 0u64..1 << 35, pa in 0u64..1 << 35, pages in 1u64..1 << 20) {
        let (va, pa, len) = (va << 12, pa << 12, pages << 12);
        let level = Level::largest_page(va, pa, len);
        prop_assert_eq!((va | pa | len) % level.span(), 0);
        if level != Level::Pdb1 {
            let above = if level == Level::Ptb { Level::Pdb0 } else { Level::Pdb1 };
            prop_assert!((va | pa | len) % above.span() != 0);
        }
        let fragment = pte::fragment(va, pa, len);
        prop_assert_eq!((va | pa | len) % (0x1000u64 << fragment.min(24)), 0);
    }
}
