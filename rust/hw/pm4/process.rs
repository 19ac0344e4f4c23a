// SPDX-License-Identifier: GPL-2.0

//! MAP_PROCESS: the context that the scheduler installs for a VMID.

use core::fmt;

use super::super::bits::fields;
use super::super::num;
use super::super::regs::gc::{
    ShMemBases,
    ShMemConfig, //
};
use super::{
    aligned,
    op,
    put,
    EncodeError,
    Header, //
};

/// Layout of MAP_PROCESS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapProcessFlavour {
    /// 16 dwords: gfx906 (`kfd_pm4_headers_ai.h`).
    V9,
    /// 21 dwords, with debugger words: gfx90a, gfx942 (`kfd_pm4_headers_aldebaran.h`).
    Aldebaran,
}

impl MapProcessFlavour {
    /// Length in dwords.
    pub(crate) const fn dwords(self) -> usize {
        match self {
            Self::V9 => MapProcess::DWORDS_V9,
            Self::Aldebaran => MapProcess::DWORDS_ALDEBARAN,
        }
    }
}

/// Trap handler of a process; both addresses are multiples of 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trap {
    /// Code.
    pub(crate) tba: u64,
    /// Its memory.
    pub(crate) tma: u64,
}

fields! {
    /// MAP_PROCESS dword 1.
    pub(crate) struct MapProcessDw1 {
        /// PASID.
        PASID [15:0];
        /// One memory operation at a time (debugger; not in the V9 layout).
        SINGLE_MEMOPS [16:16];
        /// Clean LDS and registers between processes.
        EXEC_CLEANER_SHADER [17:17];
        /// VMID of a debugged process (V9 layout).
        DEBUG_VMID [21:18];
        /// Debugged process (V9 layout).
        NEW_DEBUG [22:22];
        /// Trusted memory.
        TMZ [23:23];
        /// A debug interface queue exists.
        DIQ_ENABLE [24:24];
        /// Time slice when over-subscribed.
        PROCESS_QUANTUM [31:25];
    }
}

fields! {
    /// MAP_PROCESS dword 13.
    pub(crate) struct MapProcessDw13 {
        /// Global wave sync slots.
        NUM_GWS [6:0];
        /// SDMA queues allowed.
        SDMA_ENABLE [7:7];
        /// Ordered append counters.
        NUM_OAC [11:8];
        /// Global data share, high bits of the size.
        GDS_SIZE_HI [15:12];
        /// Global data share, low bits of the size.
        GDS_SIZE [21:16];
        /// Queues of the process in the list.
        NUM_QUEUES [31:22];
    }
}

/// Bit that KFD sets in the V9 layout's TBA high word; TRAP_EN on gfx10, not defined on gfx9.
const TBA_HI_TRAP_EN: u32 = 1 << 31;

/// MAP_PROCESS: context of one process (here: one `Vm`) for the following MAP_QUEUES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapProcess {
    /// PASID, unique in a run list.
    pub(crate) pasid: u16,
    /// Root of the page tables with flags, see `pte::page_table_base`.
    pub(crate) page_table_base: u64,
    /// Address modes and XNACK.
    pub(crate) sh_mem_config: ShMemConfig,
    /// LDS and scratch apertures.
    pub(crate) sh_mem_bases: ShMemBases,
    /// Trap handler.
    pub(crate) trap: Option<Trap>,
    /// Time slice when over-subscribed, 7 bits.
    pub(crate) quantum: u32,
    /// Queues of the process in the list, 10 bits.
    pub(crate) num_queues: u32,
    /// Global wave sync slots, 7 bits.
    pub(crate) num_gws: u32,
    /// Clean LDS and registers between processes.
    pub(crate) cleaner_shader: bool,
    /// The process has a debug interface queue.
    pub(crate) diq: bool,
    /// Debugger words; only the Aldebaran layout carries them.
    pub(crate) debug: Debug,
}

/// What a debugger that is attached to a process sets for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debug {
    /// One memory operation at a time.
    pub(crate) single_memops: bool,
    /// SPI_GDBG_PER_VMID_CNTL.
    pub(crate) spi_gdbg_per_vmid_cntl: u32,
    /// TCP_WATCHn_CNTL.
    pub(crate) tcp_watch_cntl: [u32; 4],
}

impl MapProcess {
    /// Length of the V9 layout in dwords.
    pub(crate) const DWORDS_V9: usize = 16;
    /// Length of the Aldebaran layout in dwords.
    pub(crate) const DWORDS_ALDEBARAN: usize = 21;

    /// Dwords 1 to 13, common to both layouts but for the bit of the TBA.
    fn common(&self, tba_hi_bit: u32) -> Result<[u32; 13], EncodeError> {
        // CAST: Lossless.
        let dw1 = MapProcessDw1::new()
            .with(MapProcessDw1::PASID, u32::from(self.pasid))
            .with_flag(MapProcessDw1::EXEC_CLEANER_SHADER, self.cleaner_shader)
            .with_flag(MapProcessDw1::DIQ_ENABLE, self.diq)
            .try_with(MapProcessDw1::PROCESS_QUANTUM, self.quantum)?;
        let dw13 = MapProcessDw13::new()
            .try_with(MapProcessDw13::NUM_GWS, self.num_gws)?
            .with(MapProcessDw13::SDMA_ENABLE, 1)
            .try_with(MapProcessDw13::NUM_QUEUES, self.num_queues)?;
        let [tba_lo, tba_hi, tma_lo, tma_hi] = match self.trap {
            Some(trap) => {
                let tba = aligned("tba", trap.tba, 256)? >> 8;
                let tma = aligned("tma", trap.tma, 256)? >> 8;
                [
                    num::lo32(tba),
                    num::hi32(tba) | tba_hi_bit,
                    num::lo32(tma),
                    num::hi32(tma),
                ]
            }
            None => [0; 4],
        };
        Ok([
            dw1.raw(),
            num::lo32(self.page_table_base),
            num::hi32(self.page_table_base),
            self.sh_mem_bases.raw(),
            self.sh_mem_config.raw(),
            tba_lo,
            tba_hi,
            tma_lo,
            tma_hi,
            0,
            0,
            0,
            dw13.raw(),
        ])
    }

    /// The packet in the V9 layout; debugger words are not part of it.
    ///
    /// # Errors
    ///
    /// `Misaligned` for the trap handler; `Overflow` for `quantum`, `num_queues` or `num_gws`.
    pub(crate) fn encode_v9(&self) -> Result<[u32; Self::DWORDS_V9], EncodeError> {
        let mut out = [0; Self::DWORDS_V9];
        out[0] = Header::packet(op::MAP_PROCESS, Self::DWORDS_V9).raw();
        out[1..14].copy_from_slice(&self.common(TBA_HI_TRAP_EN)?);
        Ok(out)
    }

    /// The packet in the Aldebaran layout.
    ///
    /// # Errors
    ///
    /// As [`MapProcess::encode_v9`].
    pub(crate) fn encode_aldebaran(&self) -> Result<[u32; Self::DWORDS_ALDEBARAN], EncodeError> {
        let mut out = [0; Self::DWORDS_ALDEBARAN];
        out[0] = Header::packet(op::MAP_PROCESS, Self::DWORDS_ALDEBARAN).raw();
        out[1..14].copy_from_slice(&self.common(0)?);
        out[1] = MapProcessDw1::from_raw(out[1])
            .with_flag(MapProcessDw1::SINGLE_MEMOPS, self.debug.single_memops)
            .raw();
        out[14] = self.debug.spi_gdbg_per_vmid_cntl;
        out[15..19].copy_from_slice(&self.debug.tcp_watch_cntl);
        Ok(out)
    }

    /// Writes the packet in the given layout and returns its length in dwords.
    ///
    /// # Errors
    ///
    /// As [`MapProcess::encode_v9`]; `NoSpace` if `out` is too short.
    pub(crate) fn encode_to(
        &self,
        flavour: MapProcessFlavour,
        out: &mut [u32],
    ) -> Result<usize, EncodeError> {
        match flavour {
            MapProcessFlavour::V9 => put(&self.encode_v9()?, out),
            MapProcessFlavour::Aldebaran => put(&self.encode_aldebaran()?, out),
        }
    }

    /// The meaning of a packet of 16 or 21 dwords; `None` for other lengths.
    ///
    /// Words that this driver always leaves zero are not looked at.
    pub(crate) fn decode(dw: &[u32]) -> Option<Self> {
        let v9 = dw.len() == Self::DWORDS_V9;
        if !v9 && dw.len() != Self::DWORDS_ALDEBARAN {
            return None;
        }
        let at = |n: usize| dw.get(n).copied().unwrap_or(0);
        let dw1 = MapProcessDw1::from_raw(at(1));
        let dw13 = MapProcessDw13::from_raw(at(13));
        let tba_hi = if v9 { at(7) & !TBA_HI_TRAP_EN } else { at(7) };
        let tba = num::join(at(6), tba_hi);
        let tma = num::join(at(8), at(9));
        let trap = (tba != 0 || tma != 0).then_some(Trap {
            tba: tba << 8,
            tma: tma << 8,
        });
        Some(Self {
            // CAST: The field has 16 bits.
            pasid: dw1.get(MapProcessDw1::PASID) as u16,
            page_table_base: num::join(at(2), at(3)),
            sh_mem_bases: ShMemBases::from_raw(at(4)),
            sh_mem_config: ShMemConfig::from_raw(at(5)),
            trap,
            quantum: dw1.get(MapProcessDw1::PROCESS_QUANTUM),
            num_queues: dw13.get(MapProcessDw13::NUM_QUEUES),
            num_gws: dw13.get(MapProcessDw13::NUM_GWS),
            cleaner_shader: dw1.is_set(MapProcessDw1::EXEC_CLEANER_SHADER),
            diq: dw1.is_set(MapProcessDw1::DIQ_ENABLE),
            debug: if v9 {
                Debug::default()
            } else {
                Debug {
                    single_memops: dw1.is_set(MapProcessDw1::SINGLE_MEMOPS),
                    spi_gdbg_per_vmid_cntl: at(14),
                    tcp_watch_cntl: [at(15), at(16), at(17), at(18)],
                }
            },
        })
    }
}

impl fmt::Display for MapProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MAP_PROCESS pasid {} root {:#x} queues {} quantum {} sh_mem_config {} sh_mem_bases {}",
            self.pasid,
            self.page_table_base,
            self.num_queues,
            self.quantum,
            self.sh_mem_config,
            self.sh_mem_bases,
        )?;
        if let Some(trap) = self.trap {
            write!(f, " tba {:#x} tma {:#x}", trap.tba, trap.tma)?;
        }
        if self.num_gws != 0 {
            write!(f, " gws {}", self.num_gws)?;
        }
        if self.diq {
            f.write_str(" diq")?;
        }
        if self.debug != Debug::default() {
            write!(f, " {:x?}", self.debug)?;
        }
        Ok(())
    }
}
