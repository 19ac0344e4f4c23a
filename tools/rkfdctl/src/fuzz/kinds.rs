// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The calls that are made, and which errnos each may answer here.
//!
//! Those of `/dev/kfd` are the ones that `Documentation/rocm.md` and the driver's calls name, but for those of a GPU
//! that is gone, hangs or has been reset: none is, so that `EIO`, `ENODEV` and `EACCES` would be findings.

use nix::errno::Errno;

/// Kernel-internal, but CREATE_QUEUE lets it out.
pub const ENOTSUPP: i32 = 524;

macro_rules! kinds {
    ($( $kind:ident $name:literal $ok:ident [ $( $errno:ident ),* ] )*) => {
        /// A call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $(
                #[doc = $name]
                $kind,
            )*
        }

        impl Kind {
            /// All, in the order of the table.
            pub const ALL: &'static [Self] = &[ $( Self::$kind ),* ];

            /// What a reader calls it.
            pub fn name(self) -> &'static str {
                match self { $( Self::$kind => $name ),* }
            }

            /// Whether a call of this kind can succeed.
            pub fn can_succeed(self) -> bool {
                match self { $( Self::$kind => kinds!(@$ok) ),* }
            }

            /// The errnos that it may answer.
            fn errnos(self) -> &'static [Errno] {
                match self { $( Self::$kind => &[ $( Errno::$errno ),* ] ),* }
            }
        }
    };
    (@works) => { true };
    (@fails) => { false };
}

kinds! {
    GetVersion "GET_VERSION" works []
    CreateQueue "CREATE_QUEUE" works [EINVAL, EFAULT, ESRCH, ENOSPC, ENOMEM, EUSERS, EBUSY]
    DestroyQueue "DESTROY_QUEUE" works [EINVAL]
    UpdateQueue "UPDATE_QUEUE" works [EINVAL, EFAULT, EACCES]
    SetCuMask "SET_CU_MASK" works [EINVAL, EFAULT, EACCES]
    WaveState "GET_QUEUE_WAVE_STATE" works [EINVAL, EFAULT]
    QueueGws "ALLOC_QUEUE_GWS" works [EINVAL, EBUSY, ENODEV, EACCES]
    MemoryPolicy "SET_MEMORY_POLICY" works [EINVAL, ESRCH]
    Clocks "GET_CLOCK_COUNTERS" works []
    Apertures "GET_PROCESS_APERTURES" works []
    AperturesNew "GET_PROCESS_APERTURES_NEW" works [EINVAL, EFAULT]
    CreateEvent "CREATE_EVENT" works [EINVAL, ENOMEM, ENOSPC]
    DestroyEvent "DESTROY_EVENT" works [EINVAL]
    SetEvent "SET_EVENT" works [EINVAL]
    ResetEvent "RESET_EVENT" works [EINVAL]
    WaitEvents "WAIT_EVENTS" works [EINVAL, EFAULT, ENOMEM, EIO, EINTR]
    Scratch "SET_SCRATCH_BACKING_VA" works [EINVAL, ENODEV]
    TileConfig "GET_TILE_CONFIG" works [EINVAL, EFAULT]
    TrapHandler "SET_TRAP_HANDLER" works [EINVAL, ESRCH]
    AcquireVm "ACQUIRE_VM" works [EINVAL, EBUSY, ENOMEM]
    Alloc "ALLOC_MEMORY_OF_GPU" works [EINVAL, ENOMEM, EUSERS, EFAULT, EPERM, EAGAIN, EADDRINUSE]
    Free "FREE_MEMORY_OF_GPU" works [EINVAL, EPERM, EBUSY]
    Map "MAP_MEMORY_TO_GPU" works [EINVAL, EFAULT, ENOMEM, EAGAIN]
    Unmap "UNMAP_MEMORY_FROM_GPU" works [EINVAL, EFAULT, ENOMEM, EBUSY]
    Xnack "SET_XNACK_MODE" works [EBUSY, EPERM, ENOMEM]
    Available "AVAILABLE_MEMORY" works [EINVAL]
    Runtime "RUNTIME_ENABLE" works [EBUSY, EEXIST]
    Profiler "PROFILER" works [EINVAL, EPERM, EOPNOTSUPP]
    OldDebugger "DBG_REGISTER … DBG_WAVE_CONTROL" fails [EPERM]
    DmabufInfo "GET_DMABUF_INFO" works [EBADF, EINVAL]
    ImportDmabuf "IMPORT_DMABUF" works [EBADF, EINVAL, ENODEV, ENOMEM]
    ExportDmabuf "EXPORT_DMABUF" works [EINVAL, EPERM, ENOMEM]
    SmiEvents "SMI_EVENTS" works [EINVAL, EMFILE, ENFILE, ENOMEM]
    Svm "SVM" works [EINVAL, EOVERFLOW, EFAULT, EADDRINUSE, EAGAIN, ENOMEM]
    Criu "CRIU_OP" fails [EACCES, EINVAL, EOPNOTSUPP]
    DbgTrap "DBG_TRAP" fails [EINVAL, ESRCH, EPERM, ENODEV]
    CreateProcess "CREATE_PROCESS" works [EINVAL, ENOMEM, EINTR]
    Unknown "an unknown number" fails [ENOTTY, EINVAL]
    BadArgument "any call, argument nowhere" fails [EFAULT, EACCES]
    OddSize "any call, argument of another size" works
        [EINVAL, EFAULT, ENOMEM, ESRCH, ENODEV, EBUSY, EPERM, EACCES, EEXIST, EBADF, EOPNOTSUPP, ENOSPC, EUSERS, EOVERFLOW, EADDRINUSE]
    Inherited "any call, inherited descriptor" fails [EBADF]
    KfdMmap "mmap of /dev/kfd" works [EINVAL, ENODEV, EUSERS, ENOMEM, EOVERFLOW]
    InheritedMmap "mmap of /dev/kfd, inherited" fails [EBADF]
    OpenKfd "open of /dev/kfd" works []
    OpenRender "open of the render node" works []
    RenderMmap "mmap of the render node" works [EINVAL, EACCES, EPERM, ENOMEM, EOVERFLOW]
    AmdgpuInfo "AMDGPU_INFO" works [EINVAL, EFAULT, ENOENT]
    Drm "DRM's own calls" works
        [EINVAL, EACCES, EPERM, ENOTTY, EOPNOTSUPP, ENOENT, EFAULT, EBADF, ENOSYS, ENODEV]
    NativeQuery "QUERY" works [EINVAL, EFAULT]
    NativeCreate "BO_CREATE" works [EINVAL, ENOMEM, ENOSPC]
    NativeInfo "BO_INFO" works [EINVAL, ENOENT]
    NativeBind "BIND" works [EINVAL, E2BIG, EFAULT, EPERM, ENOENT, EXDEV, EBUSY, EADDRINUSE, ENOMEM, EAGAIN]
    NativeQueueCreate "QUEUE_CREATE" works [EINVAL, EFAULT, EBUSY, ENOSPC, EUSERS, ENOMEM]
    NativeQueueUpdate "QUEUE_UPDATE" works [EINVAL, EFAULT, ENOENT, EACCES, ENOSPC, ENOMEM]
    NativeQueueDestroy "QUEUE_DESTROY" works [EINVAL, ENOENT]
    NativeEventCreate "EVENT_CREATE" works [EINVAL, EBADF, ENOSPC, ENOMEM]
    NativeEventDestroy "EVENT_DESTROY" works [EINVAL, ENOENT]
    NativeWait "WAIT" works [EINVAL, E2BIG, EFAULT, ETIME, ENOMEM]
    NativeFaults "FAULTS" works [EINVAL, EFAULT, ENOMEM]
    NativeMirrorCreate "MIRROR_CREATE" works [EINVAL, EOPNOTSUPP, EOVERFLOW, EFAULT, EADDRINUSE, EBUSY, ESRCH, EAGAIN, ENOMEM]
    NativeMirrorDestroy "MIRROR_DESTROY" works [EINVAL, ENOENT]
    NativeMirrorQuery "MIRROR_QUERY" works [ENOENT]
    NativeMirrorPopulate "MIRROR_POPULATE" works [EINVAL, ENOENT, EFAULT, ESRCH, EAGAIN, ENOMEM]
    NativeMirrorMigrate "MIRROR_MIGRATE" works [EINVAL, ENOENT, EOPNOTSUPP, ESRCH, EAGAIN, ENOMEM, ENOSPC]
    Submit "packets and doorbell" works []
    Madvise "madvise" works [EINVAL, ENOMEM, EAGAIN, EBUSY, EIO]
    Mprotect "mprotect" works [ENOMEM]
    Remap "mmap over registered memory" works [ENOMEM]
    Mremap "mremap of registered memory" works [ENOMEM, EINVAL]
    Munmap "munmap of registered memory" works []
    Fork "fork" works [EAGAIN, ENOMEM]
}

impl Kind {
    /// Whether the answer is one that is documented; 0 is success.
    pub fn expects(self, errno: i32) -> bool {
        match errno {
            0 => self.can_succeed(),
            ENOTSUPP => matches!(self, Self::CreateQueue | Self::OddSize),
            _ => self.errnos().contains(&Errno::from_raw(errno)),
        }
    }

    /// Its place in [`Kind::ALL`].
    pub fn index(self) -> usize {
        // CAST: the discriminant of a fieldless enum.
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_list() {
        for (at, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(kind.index(), at);
        }
    }

    #[test]
    fn what_is_not_documented_is_not_expected() {
        let number = |errno: Errno| errno as i32; // CAST: its number.
        assert!(Kind::Free.expects(0));
        assert!(Kind::Free.expects(number(Errno::EBUSY)));
        assert!(!Kind::Free.expects(number(Errno::EIO)));
        assert!(!Kind::Criu.expects(0));
        assert!(Kind::CreateQueue.expects(ENOTSUPP));
        assert!(!Kind::UpdateQueue.expects(ENOTSUPP));
    }
}
