// SPDX-License-Identifier: GPL-2.0

//! Registers of an SDMA engine.
//!
//! An engine has global registers, a GFX block, a PAGE block and eight RLC blocks (user queues) of
//! equal inner layout. What moved between generations is in [`SdmaLayout`]. Source:
//! `sdma0_4_2_offset.h`, `sdma_4_4_0_offset.h`, `sdma_v4_0.c`.

use super::super::bits::fields;
use super::Reg;

/// User queues of an engine.
pub(crate) const RLC_QUEUES: u32 = 8;
/// Offset of GFX_RB_CNTL.
pub(crate) const GFX_BLOCK: u32 = 0x80;

/// Where the registers of an engine are, as offsets from the engine's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SdmaLayout {
    /// Dword base of each engine.
    pub(crate) engines: &'static [u32],
    /// Offset of the PAGE block.
    pub(crate) page_block: u32,
    /// Offset of the first RLC block.
    pub(crate) rlc_block: u32,
    /// Distance of the blocks.
    pub(crate) block_stride: u32,
    /// Offset of MIDCMD_CNTL inside a block.
    pub(crate) midcmd_cntl: u32,
    /// Offset of CNTL.
    pub(crate) cntl: u32,
    /// Offset of F32_CNTL.
    pub(crate) f32_cntl: u32,
    /// F32_CNTL has RESET (`sdma_4_4_0_sh_mask.h`; `sdma0_4_2_sh_mask.h` has not).
    pub(crate) f32_reset: bool,
    /// Count fields of COPY and CONST_FILL have 30 bits (4.4.x) instead of 22.
    pub(crate) long_count: bool,
    /// CNTL has CTXEMPTY_INT_ENABLE set at start (4.4.x, `sdma_v4_0.c`).
    pub(crate) ctxempty_int: bool,
}

/// One engine of an ASIC.
///
/// # Invariants
///
/// `engine` indexes `layout.engines`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Engine {
    layout: &'static SdmaLayout,
    base: u32,
}

impl SdmaLayout {
    /// Engine `n`, if there is one.
    pub(crate) fn engine(&'static self, n: u32) -> Option<Engine> {
        let base = *self.engines.get(super::super::num::index(n))?;
        Some(Engine { layout: self, base })
    }
}

impl Engine {
    /// Whether the engine can be reset alone, by F32_CNTL.RESET.
    pub(crate) const fn can_be_reset(&self) -> bool {
        self.layout.f32_reset
    }

    const fn at(&self, offset: u32) -> Reg {
        Reg::new(self.base, offset)
    }

    /// UCODE_ADDR, see [`super::gc::UcodeAddr`].
    pub(crate) const fn ucode_addr(&self) -> Reg {
        self.at(0)
    }

    /// CNTL, see [`Cntl`].
    pub(crate) const fn cntl(&self) -> Reg {
        self.at(self.layout.cntl)
    }

    /// CHICKEN_BITS.
    pub(crate) const fn chicken_bits(&self) -> Reg {
        self.at(self.layout.cntl + 1)
    }

    /// GB_ADDR_CONFIG.
    pub(crate) const fn gb_addr_config(&self) -> Reg {
        self.at(self.layout.cntl + 2)
    }

    /// SEM_WAIT_FAIL_TIMER_CNTL.
    pub(crate) const fn sem_wait_fail_timer_cntl(&self) -> Reg {
        self.at(0x21)
    }

    /// STATUS_REG, see [`Status`].
    pub(crate) const fn status(&self) -> Reg {
        self.at(0x25)
    }

    /// F32_CNTL, see [`F32Cntl`].
    pub(crate) const fn f32_cntl(&self) -> Reg {
        self.at(self.layout.f32_cntl)
    }

    /// FREEZE, see [`Freeze`].
    pub(crate) const fn freeze(&self) -> Reg {
        self.at(0x2b)
    }

    /// PHASE0_QUANTUM, see [`PhaseQuantum`].
    pub(crate) const fn phase0_quantum(&self) -> Reg {
        self.at(0x2c)
    }

    /// PHASE1_QUANTUM, see [`PhaseQuantum`].
    pub(crate) const fn phase1_quantum(&self) -> Reg {
        self.at(0x2d)
    }

    /// PHASE2_QUANTUM, see [`PhaseQuantum`].
    pub(crate) const fn phase2_quantum(&self) -> Reg {
        self.at(0x4f)
    }

    /// UTCL1_CNTL.
    pub(crate) const fn utcl1_cntl(&self) -> Reg {
        self.at(0x3c)
    }

    /// UTCL1_TIMEOUT: XNACK limits, see [`UTCL1_TIMEOUT_DRIVER`].
    pub(crate) const fn utcl1_timeout(&self) -> Reg {
        self.at(0x47)
    }

    /// UTCL1_PAGE.
    pub(crate) const fn utcl1_page(&self) -> Reg {
        self.at(0x48)
    }

    /// The kernel ring's block.
    pub(crate) const fn gfx(&self) -> Block {
        Block {
            base: self.base + GFX_BLOCK,
            midcmd_cntl: self.layout.midcmd_cntl,
        }
    }

    /// The paging ring's block.
    pub(crate) const fn page(&self) -> Block {
        Block {
            base: self.base + self.layout.page_block,
            midcmd_cntl: self.layout.midcmd_cntl,
        }
    }

    /// Block of user queue `queue`; `None` from [`RLC_QUEUES`] on.
    pub(crate) const fn rlc(&self, queue: u32) -> Option<Block> {
        if queue >= RLC_QUEUES {
            return None;
        }
        Some(Block {
            base: self.base + self.layout.rlc_block + queue * self.layout.block_stride,
            midcmd_cntl: self.layout.midcmd_cntl,
        })
    }
}

/// Registers of one queue context (GFX, PAGE or RLC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    base: u32,
    midcmd_cntl: u32,
}

/// Declares accessors of registers at fixed offsets inside a block.
macro_rules! block_regs {
    ($($(#[$meta:meta])* $name:ident = $offset:literal;)*) => {
        impl Block {
            $(
                $(#[$meta])*
                pub(crate) const fn $name(&self) -> Reg {
                    Reg::new(self.base, $offset)
                }
            )*
        }
    };
}

block_regs! {
    /// RB_CNTL, see [`RbCntl`].
    rb_cntl = 0x00;
    /// RB_BASE: ring address >> 8.
    rb_base = 0x01;
    /// RB_BASE_HI.
    rb_base_hi = 0x02;
    /// RB_RPTR in bytes.
    rb_rptr = 0x03;
    /// RB_RPTR_HI.
    rb_rptr_hi = 0x04;
    /// RB_WPTR in bytes.
    rb_wptr = 0x05;
    /// RB_WPTR_HI.
    rb_wptr_hi = 0x06;
    /// RB_WPTR_POLL_CNTL.
    rb_wptr_poll_cntl = 0x07;
    /// RB_RPTR_ADDR_HI: the high half comes first.
    rb_rptr_addr_hi = 0x08;
    /// RB_RPTR_ADDR_LO.
    rb_rptr_addr_lo = 0x09;
    /// IB_CNTL, see [`IbCntl`].
    ib_cntl = 0x0a;
    /// CONTEXT_STATUS, see [`ContextStatus`].
    context_status = 0x11;
    /// DOORBELL, see [`Doorbell`].
    doorbell = 0x12;
    /// STATUS.
    status = 0x28;
    /// DOORBELL_LOG.
    doorbell_log = 0x29;
    /// WATERMARK.
    watermark = 0x2a;
    /// DOORBELL_OFFSET, see [`DoorbellOffset`].
    doorbell_offset = 0x2b;
    /// CSA_ADDR_LO.
    csa_addr_lo = 0x2c;
    /// CSA_ADDR_HI.
    csa_addr_hi = 0x2d;
    /// IB_SUB_REMAIN.
    ib_sub_remain = 0x2f;
    /// PREEMPT.
    preempt = 0x30;
    /// DUMMY_REG.
    dummy_reg = 0x31;
    /// RB_WPTR_POLL_ADDR_HI: the high half comes first.
    rb_wptr_poll_addr_hi = 0x32;
    /// RB_WPTR_POLL_ADDR_LO.
    rb_wptr_poll_addr_lo = 0x33;
    /// RB_AQL_CNTL.
    rb_aql_cntl = 0x34;
    /// MINOR_PTR_UPDATE: 1 while pointers are being written.
    minor_ptr_update = 0x35;
    /// First of the MIDCMD_DATA registers.
    midcmd_data0 = 0x40;
}

impl Block {
    /// MIDCMD_CNTL.
    pub(crate) const fn midcmd_cntl(&self) -> Reg {
        Reg::new(self.base, self.midcmd_cntl)
    }
}

/// UTCL1_TIMEOUT as the driver sets it: read and write XNACK limit 128.
pub(crate) const UTCL1_TIMEOUT_DRIVER: u32 = 0x0080_0080;

fields! {
    /// PHASE*n*_QUANTUM: how long a context keeps the engine before the next one gets it, with CNTL.AUTO_CTXSW_ENABLE.
    pub(crate) struct PhaseQuantum {
        /// VALUE counts 1024 << UNIT cycles of the GPU's clock.
        UNIT [3:0];
        /// See UNIT.
        VALUE [23:8];
        /// Keep to the quantum before others are considered.
        PREFER [30:30];
    }
}

impl PhaseQuantum {
    /// 32 Ki cycles in each phase (`amdgpu_drv.c`, `amdgpu_sdma_phase_quantum`).
    pub(crate) const DRIVER: Self = Self::new().with(Self::VALUE, 32);
}

fields! {
    /// CNTL.
    pub(crate) struct Cntl {
        /// TRAP packets raise interrupts.
        TRAP_ENABLE [0:0];
        /// Translate addresses.
        UTC_L1_ENABLE [1:1];
        /// Semaphore wait interrupt.
        SEM_WAIT_INT_ENABLE [2:2];
        /// Preempt inside a command.
        MIDCMD_PREEMPT_ENABLE [5:5];
        /// World switch inside a command.
        MIDCMD_WORLDSWITCH_ENABLE [17:17];
        /// Switch between user queues.
        AUTO_CTXSW_ENABLE [18:18];
        /// Context empty interrupt.
        CTXEMPTY_INT_ENABLE [28:28];
        /// Frozen interrupt.
        FROZEN_INT_ENABLE [29:29];
        /// Preempted indirect buffer interrupt.
        IB_PREEMPT_INT_ENABLE [30:30];
    }
}

fields! {
    /// F32_CNTL.
    pub(crate) struct F32Cntl {
        /// Stop the microcode.
        HALT [0:0];
        /// Single step.
        STEP [1:1];
        /// Reset (4.4.x).
        RESET [8:8];
    }
}

fields! {
    /// RB_CNTL.
    pub(crate) struct RbCntl {
        /// Ring in use.
        RB_ENABLE [0:0];
        /// log2 of the size in dwords.
        RB_SIZE [5:1];
        /// Endianness.
        RB_SWAP_ENABLE [9:9];
        /// Write the read pointer back.
        RPTR_WRITEBACK_ENABLE [12:12];
        /// Write-back period.
        RPTR_WRITEBACK_TIMER [20:16];
        /// Privileged ring.
        RB_PRIV [23:23];
        /// VMID.
        RB_VMID [27:24];
    }
}

fields! {
    /// IB_CNTL.
    pub(crate) struct IbCntl {
        /// Indirect buffers allowed (kernel ring).
        IB_ENABLE [0:0];
        /// Endianness.
        IB_SWAP_ENABLE [4:4];
        /// Another context may run before the buffer ends.
        SWITCH_INSIDE_IB [8:8];
        /// VMID.
        CMD_VMID [19:16];
    }
}

fields! {
    /// RB_WPTR_POLL_CNTL.
    pub(crate) struct WptrPollCntl {
        /// The engine's hardware polls the write pointer in memory.
        ENABLE [0:0];
        /// The engine's microcode does.
        F32_POLL_ENABLE [2:2];
        /// Pause between polls.
        FREQUENCY [15:4];
        /// Polls before the queue counts as idle.
        IDLE_POLL_COUNT [31:16];
    }
}

impl WptrPollCntl {
    /// Polling with the pauses of `sdma_v4_0.c`'s golden settings: 0x00403004.
    pub(crate) const USER: Self = Self::new()
        .with(Self::F32_POLL_ENABLE, 1)
        .with(Self::FREQUENCY, 0x300)
        .with(Self::IDLE_POLL_COUNT, 0x40);
}

fields! {
    /// DOORBELL.
    pub(crate) struct Doorbell {
        /// Doorbell in use.
        ENABLE [28:28];
        /// A doorbell arrived.
        CAPTURED [30:30];
    }
}

fields! {
    /// DOORBELL_OFFSET.
    pub(crate) struct DoorbellOffset {
        /// Dword index in BAR2.
        OFFSET [27:2];
    }
}

fields! {
    /// CONTEXT_STATUS.
    pub(crate) struct ContextStatus {
        /// Selected by the context switcher.
        SELECTED [0:0];
        /// Idle.
        IDLE [2:2];
        /// Quantum used up.
        EXPIRED [3:3];
        /// Exception code.
        EXCEPTION [6:4];
        /// May be switched.
        CTXSW_ABLE [7:7];
        /// Ready to be switched.
        CTXSW_READY [8:8];
        /// Preempted.
        PREEMPTED [9:9];
        /// Preemption off.
        PREEMPT_DISABLE [10:10];
    }
}

fields! {
    /// FREEZE.
    pub(crate) struct Freeze {
        /// Preempt the running context.
        PREEMPT [0:0];
        /// Freeze request.
        FREEZE [4:4];
        /// Frozen.
        FROZEN [5:5];
        /// Microcode frozen.
        F32_FREEZE [6:6];
    }
}

fields! {
    /// STATUS_REG.
    pub(crate) struct Status {
        /// Idle.
        IDLE [0:0];
        /// Registers idle.
        REG_IDLE [1:1];
        /// Ring empty.
        RB_EMPTY [2:2];
        /// Ring full.
        RB_FULL [3:3];
        /// All contexts empty.
        CONTEXT_EMPTY [15:15];
        /// Interrupts idle.
        INT_IDLE [30:30];
    }
}
