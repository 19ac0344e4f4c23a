// SPDX-License-Identifier: GPL-2.0

//! The list of reserved video memory.

use kernel::prelude::*;

use crate::gpu::{
    reserved::{
        Reserved,
        Span, //
    },
    VramManager, //
};

fn spans(text: &'static [u8]) -> Result<KVec<(u64, u64)>> {
    let mut found = KVec::new();
    for Span { start, size } in Reserved::new(text).spans() {
        found.push((start, size), GFP_KERNEL)?;
    }
    Ok(found)
}

#[kunit_tests(rkfd_gpu_reserved)]
mod suite {
    use super::*;

    #[test]
    fn a_list_is_read_as_memmap_is() -> Result {
        let text = b"64K@0x3fff0000, 8M@0,4096@12k,0x1000@1G,1g@0x10G";
        assert_eq!(Reserved::new(text).malformed(), None);
        assert_eq!(
            spans(text)?.as_slice(),
            [
                (0x3fff_0000, 0x1_0000),
                (0, 8 << 20),
                (12 << 10, 4096),
                (1 << 30, 0x1000),
                (16 << 30, 1 << 30),
            ]
        );
        Ok(())
    }

    #[test]
    fn nothing_is_not_none() -> Result {
        for text in [b"".as_slice(), b"  "] {
            assert!(!Reserved::new(text).is_given());
            assert!(spans(text)?.is_empty());
        }
        for text in [b"none".as_slice(), b" none "] {
            assert!(Reserved::new(text).is_given());
            assert_eq!(Reserved::new(text).malformed(), None);
            assert!(spans(text)?.is_empty());
        }
        assert!(!Reserved::default().is_given());
        Ok(())
    }

    #[test]
    fn what_is_no_part_of_memory_is_found() -> Result {
        for text in [
            b"1M".as_slice(),
            b"@0",
            b"1M@",
            b"0@0",
            b"-1@0",
            b"+1@0",
            b"1@0x",
            b"1T@0",
            b"1K@0@1",
            b"ff@0",
            b"18446744073709551615@1",
            b"17179869184G@0",
            b"none,1M@0",
            b"1M@0;1M@1M",
        ] {
            assert!(Reserved::new(text).malformed().is_some());
        }
        // Entries beside it are what they are.
        assert_eq!(Reserved::new(b"1M@0,x,").malformed(), Some(b"x".as_slice()));
        assert_eq!(
            spans(b"1M@0,x,2M@4M")?.as_slice(),
            [(0, 1 << 20), (4 << 20, 2 << 20)]
        );
        Ok(())
    }

    #[test]
    fn reserved_memory_is_not_handed_out() -> Result {
        const SIZE: u64 = 16 << 20;
        let vram = VramManager::new(SIZE, 0, 0)?;
        // The last 64 KiB are not managed.
        let total = vram.total();
        assert_eq!(total, SIZE - (64 << 10));
        let first = vram.reserve(Span { start: 0, size: 1 })?.ok_or(EINVAL)?;
        assert_eq!((first.offset(), first.size()), (0, 4096));
        let middle = Span {
            start: (4 << 20) + 100,
            size: 4096,
        };
        let middle = vram.reserve(middle)?.ok_or(EINVAL)?;
        assert_eq!((middle.offset(), middle.size()), (4 << 20, 8192));
        // The part that is managed, of one that is not altogether.
        let last = vram.reserve(Span {
            start: total - 4096,
            size: 1 << 20,
        })?;
        assert_eq!(last.as_ref().map(|block| block.size()), Some(4096));
        assert!(vram
            .reserve(Span {
                start: total,
                size: 64 << 10
            })?
            .is_none());
        assert!(vram
            .reserve(Span {
                start: 1 << 40,
                size: 1
            })?
            .is_none());
        assert_eq!(
            vram.reserve(Span {
                start: 4095,
                size: 1
            })
            .err(),
            Some(ENOSPC)
        );
        assert_eq!(vram.used(), 4096 + 8192 + 4096);
        let mut blocks = KVVec::new();
        while let Ok(block) = vram.alloc(4096, 0) {
            let (start, end) = (block.offset(), block.offset() + block.size());
            assert!(start >= 4096 && end <= total - 4096);
            assert!(end <= 4 << 20 || start >= (4 << 20) + 8192);
            blocks.push(block, GFP_KERNEL)?;
        }
        assert_eq!(vram.available(), 0);
        Ok(())
    }
}
