// SPDX-License-Identifier: GPL-2.0

//! KUnit: page-table entries and address arithmetic.
//!
//! Outside a module build (`MODULE` unset) the same cases run as ordinary tests on the host.

#[cfg_attr(MODULE, kernel::macros::kunit_tests(rkfd_hw_pte))]
mod tests {
    use crate::hw::pte;
    use crate::hw::pte::Access;
    use crate::hw::pte::Aperture;
    use crate::hw::pte::Coherence;
    use crate::hw::pte::Entry;
    use crate::hw::pte::Flavour;
    use crate::hw::pte::Level;
    use crate::hw::pte::Meaning;
    use crate::hw::pte::Memory;
    use crate::hw::pte::Mtype;
    use crate::hw::pte::MtypePolicy;
    use crate::hw::pte::PageAttrs;
    use crate::hw::pte::PteError;

    const VRAM: PageAttrs = PageAttrs {
        aperture: Aperture::Vram,
        access: Access::RWX,
        mtype: Mtype::Rw,
        fragment: 0,
    };
    const SYSTEM: PageAttrs = PageAttrs {
        aperture: Aperture::System { snooped: true },
        access: Access::RW,
        mtype: Mtype::Uc,
        fragment: 3,
    };

    #[test]
    fn small_pages_are_alike_in_both_flavours() {
        for flavour in [Flavour::Plain, Flavour::TranslateFurther] {
            assert_eq!(
                flavour.page(Level::Ptb, 0x1234_5000, VRAM).map(Entry::raw),
                Ok(0x0200_0000_1234_5071)
            );
            assert_eq!(
                flavour
                    .page(Level::Ptb, 0x0000_7FFF_1234_5000, SYSTEM)
                    .map(Entry::raw),
                Ok(0x0600_7FFF_1234_51E7)
            );
        }
    }

    #[test]
    fn large_pages_differ_by_flavour() {
        let plain = Flavour::Plain.page(Level::Pdb0, 0x1220_0000, VRAM);
        assert_eq!(plain.map(Entry::raw), Ok(0x0240_0000_1220_0071));
        let further = Flavour::TranslateFurther.page(Level::Pdb0, 0x1220_0000, VRAM);
        assert_eq!(further.map(Entry::raw), Ok(0x0200_0000_1220_0071));
        for flavour in [Flavour::Plain, Flavour::TranslateFurther] {
            let huge = flavour.page(Level::Pdb1, 0x4000_0000, VRAM);
            assert_eq!(huge.map(Entry::raw), Ok(0x0240_0000_4000_0071));
        }
    }

    #[test]
    fn directories_differ_by_flavour() {
        for (flavour, level, expected) in [
            (Flavour::Plain, Level::Pdb2, 0x1_2001),
            (Flavour::Plain, Level::Pdb1, 0x1_2001),
            (Flavour::Plain, Level::Pdb0, 0x1_2001),
            (Flavour::TranslateFurther, Level::Pdb2, 0x1_2001),
            (
                Flavour::TranslateFurther,
                Level::Pdb1,
                0x4800_0000_0001_2001,
            ),
            (
                Flavour::TranslateFurther,
                Level::Pdb0,
                0x0100_0000_0001_2001,
            ),
        ] {
            let entry = flavour.table(level, 0x1_2000, Aperture::Vram);
            assert_eq!(entry.map(Entry::raw), Ok(expected));
        }
    }

    #[test]
    fn a_small_entry_cannot_point_to_a_table() {
        assert_eq!(
            Flavour::Plain.table(Level::Ptb, 0x1000, Aperture::Vram),
            Err(PteError::WrongLevel(Level::Ptb))
        );
        assert_eq!(
            Flavour::Plain.page(Level::Pdb2, 0, VRAM),
            Err(PteError::WrongLevel(Level::Pdb2))
        );
    }

    #[test]
    fn addresses_are_checked() {
        let page = |level, pa| Flavour::TranslateFurther.page(level, pa, VRAM);
        assert!(page(Level::Ptb, 0x0000_FFFF_FFFF_F000).is_ok());
        assert_eq!(page(Level::Ptb, 1 << 48), Err(PteError::TooWide(1 << 48)));
        assert_eq!(page(Level::Ptb, 0x800), Err(PteError::Misaligned(0x800)));
        assert_eq!(
            page(Level::Pdb0, 0x10_0000),
            Err(PteError::Misaligned(0x10_0000))
        );
        assert_eq!(
            page(Level::Pdb1, 0x20_0000),
            Err(PteError::Misaligned(0x20_0000))
        );
        let table = |pa| Flavour::Plain.table(Level::Pdb0, pa, Aperture::Vram);
        assert!(table(0x40).is_ok());
        assert_eq!(table(0x20), Err(PteError::Misaligned(0x20)));
    }

    #[test]
    fn the_no_retry_entry_has_its_value() {
        assert_eq!(pte::NO_RETRY.raw(), 0x0008_0000_0000_0003);
        for flavour in [Flavour::Plain, Flavour::TranslateFurther] {
            assert_eq!(flavour.decode(Level::Ptb, pte::NO_RETRY), Meaning::NoRetry);
        }
    }

    #[test]
    fn unmapped_entries_keep_the_fault_priority() {
        assert_eq!(Flavour::Plain.unmapped(Level::Ptb).raw(), 0x10);
        assert_eq!(Flavour::TranslateFurther.unmapped(Level::Ptb).raw(), 0x10);
        assert_eq!(
            Flavour::TranslateFurther.unmapped(Level::Pdb0).raw(),
            0x1000
        );
        assert_eq!(Flavour::Plain.unmapped(Level::Pdb0).raw(), 0);
        for level in Level::ALL {
            let entry = Flavour::TranslateFurther.unmapped(level);
            assert_eq!(
                Flavour::TranslateFurther.decode(level, entry),
                Meaning::Invalid
            );
        }
    }

    #[test]
    fn a_root_with_a_page_bit_is_malformed() {
        let entry = Entry::from_raw(0x0040_0000_0000_0001);
        assert_eq!(
            Flavour::Plain.decode(Level::Pdb2, entry),
            Meaning::Malformed
        );
    }

    #[test]
    fn indices_split_the_address() {
        let va = 0x0000_8765_4321_F000;
        assert_eq!(Level::Pdb2.index(va), 0x10E);
        assert_eq!(Level::Pdb1.index(va), 0x195);
        assert_eq!(Level::Pdb0.index(va), 0x019);
        assert_eq!(Level::Ptb.index(va), 0x01F);
        assert_eq!(Level::Pdb1.span(), 1 << 30);
        assert_eq!(Level::Pdb2.child(), Some(Level::Pdb1));
        assert_eq!(Level::Ptb.child(), None);
    }

    #[test]
    fn the_largest_page_needs_three_alignments() {
        let mb2 = 0x20_0000;
        let gb = 0x4000_0000;
        assert_eq!(Level::largest_page(gb, 0, gb), Level::Pdb1);
        assert_eq!(Level::largest_page(gb, mb2, gb), Level::Pdb0);
        assert_eq!(Level::largest_page(mb2, gb, mb2), Level::Pdb0);
        assert_eq!(Level::largest_page(mb2, gb, mb2 + 0x1000), Level::Ptb);
        assert_eq!(Level::largest_page(mb2, 0x1000, mb2), Level::Ptb);
        assert_eq!(Level::largest_page(0, 0, 0), Level::Ptb);
    }

    #[test]
    fn fragments_follow_the_smallest_alignment() {
        assert_eq!(pte::fragment(0, 0, 0x1000), 0);
        assert_eq!(pte::fragment(0, 0, 0x2000), 1);
        assert_eq!(pte::fragment(0x4000, 0x8000, 0x1_0000), 2);
        assert_eq!(pte::fragment(0x20_0000, 0x20_0000, 0x20_0000), 9);
        assert_eq!(pte::fragment(0x20_0000, 0x20_1000, 0x20_0000), 0);
        assert_eq!(pte::fragment(0, 0, 0), 0);
    }

    #[test]
    fn the_hole_is_not_canonical() {
        assert!(pte::is_canonical(0x0000_7FFF_FFFF_FFFF));
        assert!(!pte::is_canonical(0x0000_8000_0000_0000));
        assert!(!pte::is_canonical(0xFFFF_7FFF_FFFF_FFFF));
        assert!(pte::is_canonical(0xFFFF_8000_0000_0000));
    }

    #[test]
    fn memory_types_follow_the_policy() {
        for (policy, memory, coherence, expected) in [
            (
                MtypePolicy::Aldebaran,
                Memory::Local,
                Coherence::Default,
                Mtype::Rw,
            ),
            (
                MtypePolicy::Aldebaran,
                Memory::Local,
                Coherence::Coherent,
                Mtype::Cc,
            ),
            (
                MtypePolicy::Aldebaran,
                Memory::Local,
                Coherence::Uncached,
                Mtype::Uc,
            ),
            (
                MtypePolicy::Aldebaran,
                Memory::System,
                Coherence::Default,
                Mtype::Nc,
            ),
            (
                MtypePolicy::Aldebaran,
                Memory::System,
                Coherence::Coherent,
                Mtype::Uc,
            ),
            (
                MtypePolicy::Aldebaran,
                Memory::Peer,
                Coherence::Default,
                Mtype::Nc,
            ),
            (
                MtypePolicy::Vega,
                Memory::Local,
                Coherence::Default,
                Mtype::Nc,
            ),
            (
                MtypePolicy::Vega,
                Memory::Local,
                Coherence::Coherent,
                Mtype::Uc,
            ),
        ] {
            assert_eq!(policy.mtype(memory, coherence), expected);
        }
    }

    #[test]
    fn the_root_carries_its_flags() {
        assert_eq!(
            pte::page_table_base(0x12_3456_7000, Aperture::Vram),
            Ok(0x12_3456_7001)
        );
        assert_eq!(
            pte::page_table_base(0x12_3456_7000, Aperture::System { snooped: true }),
            Ok(0x12_3456_7007)
        );
        assert_eq!(
            pte::page_table_base(0x40, Aperture::Vram),
            Err(PteError::Misaligned(0x40))
        );
    }
}
