// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What cannot be launched.

use std::sync::Arc;

use rkfd::code::arguments::Value;
use rkfd::code::dispatch::Dispatch;
use rkfd::code::error::CodeError;
use rkfd::code::program::Program;
use rkfd::device::Device;
use rkfd::error::Error;

use crate::bench::along;
use crate::bench::contents;
use crate::bench::kernel_file;
use crate::bench::load;
use crate::bench::same;
use crate::bench::Bench;

pub fn code_error<T: std::fmt::Debug>(result: rkfd::error::Result<T>) -> CodeError {
    match result.unwrap_err() {
        Error::Code(error) => error,
        other => panic!("{other:?}"),
    }
}

pub fn refused(device: &Arc<Device>) {
    let bench = Bench::new(device);
    assert!(matches!(
        code_error(Program::load(device, b"no")),
        CodeError::Elf(_)
    ));
    let mut other = kernel_file(device, "hip.co");
    // The machine in e_flags.
    other[48] = if other[48] == 0x2f { 0x3f } else { 0x2f };
    let wrong = code_error(Program::load(device, &other));
    assert!(matches!(wrong, CodeError::WrongIsa { .. }), "{wrong}");
    let program = load(device, "hip.co");
    assert!(matches!(
        code_error(program.kernel("none")),
        CodeError::NoKernel { .. }
    ));
    assert!(matches!(
        code_error(program.symbol("none")),
        CodeError::NoSymbol(_)
    ));
    let kernel = program.kernel("step").unwrap();
    let launch =
        |dispatch: Dispatch<'_>| code_error(bench.queue.dispatch(&dispatch, &bench.kernargs));
    let data = bench.memory(4096);
    let with =
        |dispatch: Dispatch<'_>| launch(dispatch.argument(&data).argument(1u32).argument(2u32));
    for (wrong, text) in [
        (with(along(&kernel, 0, 64)), "Work-items in a dimension"),
        (with(along(&kernel, 64, 0)), "Work-items in a dimension"),
        (
            with(along(&kernel, 2048, 512)),
            "Work-items of a work-group: 512 where 256",
        ),
        (
            with(along(&kernel, 64, 64).dynamic_group_bytes(65537)),
            "group memory: 65537 where 65536",
        ),
        (
            launch(along(&kernel, 64, 64)),
            "0 arguments where the kernel has 3",
        ),
        (
            with(along(&kernel, 64, 64).argument(1u32)),
            "4 arguments where the kernel has 3",
        ),
        (
            launch(
                along(&kernel, 64, 64)
                    .argument(1u64)
                    .argument(1u64)
                    .argument(1u32),
            ),
            "Argument 1: 8 bytes where it has 4",
        ),
        (
            launch(
                along(&kernel, 64, 64)
                    .argument(Value::Local(4))
                    .argument(1u32)
                    .argument(1u32),
            ),
            "Argument 0: global_buffer takes no size",
        ),
    ] {
        assert!(wrong.to_string().contains(text), "{wrong}: {text}");
    }
    let fits = along(&kernel, 64, 64)
        .argument(&data)
        .argument(64u32)
        .argument(2u32);
    assert!(bench
        .queue
        .dispatch(&fits.clone().private_bytes(1 << 20), &bench.kernargs)
        .is_err());
    // Nothing of all that went into the queue.
    assert_eq!(bench.queue.write_pointer(), 0);
    bench.run(fits);
    same(&contents(&data, 65), &[vec![2u32; 64], vec![0]].concat());
}
