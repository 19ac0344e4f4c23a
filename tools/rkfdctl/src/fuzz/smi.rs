// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Files of SMI_EVENTS: opened, asked for anything, read a little, closed.

use rkfd::abi;
use rkfd::sys;

use super::kinds::Kind;
use super::thread::Thread;

impl Thread<'_> {
    /// A file of events, for a moment.
    pub fn smi_events(&mut self) {
        let mut arg = abi::SmiEvents {
            gpuid: self.dice.w32(self.process.plan.target.gpu_id),
            anon_fd: 0,
        };
        if self
            .process
            .call(Kind::SmiEvents, abi::SMI_EVENTS, &mut arg)
            != 0
        {
            return;
        }
        // SAFETY: the call handed out a new descriptor, which nobody else has.
        let file = unsafe { sys::own_descriptor(arg.anon_fd) };
        for _ in 0..self.dice.below(4) {
            let mask = self.dice.w64(u64::MAX).to_ne_bytes();
            // CAST: below 9.
            let len = self.dice.below(9) as usize;
            // Less than a mask is EFAULT, and no events EAGAIN.
            let _ = nix::unistd::write(&file, &mask[..len]);
            let mut bytes = [0; 200];
            let _ = nix::unistd::read(&file, &mut bytes);
        }
    }
}
