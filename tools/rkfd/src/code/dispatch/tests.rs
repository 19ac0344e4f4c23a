// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Arguments, dimensions and memory of launches, planned without a GPU.

use super::*;
use crate::code::descriptor::Descriptor;
use crate::code::descriptor::BYTES;
use crate::code::metadata::ArgumentMetadata;
use crate::code::metadata::KernelMetadata;

const AROUND: Surroundings = Surroundings {
    queue: 0x7f00_0000_1000,
    private_base: 2 << 48,
    group_base: 1 << 48,
};

fn argument(offset: u32, size: u32, kind: ArgumentKind) -> ArgumentMetadata {
    ArgumentMetadata {
        name: String::new(),
        offset,
        size,
        kind,
        pointee_align: 64,
    }
}

/// With 100 bytes of group memory of its own.
fn kernel(arguments: Vec<ArgumentMetadata>) -> KernelCode {
    let mut bytes = [0; BYTES];
    bytes[0] = 100;
    KernelCode {
        name: "k".into(),
        address: 0,
        descriptor: Descriptor::parse(&bytes),
        metadata: Some(KernelMetadata {
            kernarg_bytes: arguments
                .iter()
                .map(|a| a.offset + a.size)
                .max()
                .unwrap_or(0),
            arguments,
            max_group: 256,
            ..KernelMetadata::default()
        }),
    }
}

fn shape(grid: [u32; 3], group: [u16; 3], arguments: Vec<Value>) -> Shape {
    Shape {
        grid,
        group,
        arguments,
        ..Shape::default()
    }
}

#[test]
fn arguments_go_where_they_belong() {
    let kernel = kernel(vec![
        argument(0, 8, ArgumentKind::GlobalBuffer),
        argument(8, 4, ArgumentKind::DynamicShared),
        argument(12, 4, ArgumentKind::DynamicShared),
        argument(16, 2, ArgumentKind::ByValue),
    ]);
    let values = vec![
        Value::Address(0x1122_3344_5566),
        Value::Local(10),
        Value::Local(1000),
        0x7788u16.into(),
    ];
    let planned = shape([64, 1, 1], [64, 1, 1], values)
        .plan(&kernel, &AROUND)
        .unwrap();
    // Behind the kernel's own, each on 64 bytes.
    let wanted = [
        &0x1122_3344_5566u64.to_le_bytes()[..],
        &128u32.to_le_bytes(),
        &192u32.to_le_bytes(),
        &0x7788u16.to_le_bytes(),
    ];
    assert_eq!(planned.kernargs, wanted.concat());
    assert_eq!((planned.group_bytes, planned.kernarg_align), (1192, 16));
}

#[test]
fn hidden_arguments_tell_of_the_launch() {
    let kinds = [
        (ArgumentKind::BlockCountX, 4, 2u64),
        (ArgumentKind::BlockCountY, 4, 1),
        (ArgumentKind::BlockCountZ, 4, 5),
        (ArgumentKind::GroupSizeX, 2, 16),
        (ArgumentKind::GroupSizeY, 2, 8),
        (ArgumentKind::GroupSizeZ, 2, 1),
        (ArgumentKind::RemainderX, 2, 4),
        (ArgumentKind::RemainderY, 2, 1),
        (ArgumentKind::RemainderZ, 2, 0),
        (ArgumentKind::GridDims, 2, 3),
        (ArgumentKind::GlobalOffsetX, 8, 7),
        (ArgumentKind::GlobalOffsetY, 8, 1 << 40),
        (ArgumentKind::GlobalOffsetZ, 8, 0),
        (ArgumentKind::DynamicLdsSize, 4, 300),
        (ArgumentKind::PrivateBase, 4, 0x2_0000),
        (ArgumentKind::SharedBase, 4, 0x1_0000),
        (ArgumentKind::QueuePtr, 8, 0x7f00_0000_1000),
        (ArgumentKind::HostcallBuffer, 8, 0),
        (ArgumentKind::Other("hidden_of_tomorrow".into()), 8, 0),
    ];
    let (mut offset, mut arguments, mut wanted) = (0, Vec::new(), Vec::new());
    for (kind, size, value) in kinds {
        arguments.push(argument(offset, size, kind));
        wanted.extend(&value.to_le_bytes()[..size as usize]);
        offset += size;
    }
    let shape = Shape {
        offset: [7, 1 << 40, 0],
        group_bytes: 300,
        ..shape([36, 9, 5], [16, 8, 1], vec![])
    };
    let planned = shape.plan(&kernel(arguments), &AROUND).unwrap();
    assert_eq!(planned.kernargs, wanted);
    assert_eq!(planned.group_bytes, 400);
}

#[test]
fn launches_that_cannot_be_are_refused() {
    let plain = || kernel(vec![argument(0, 4, ArgumentKind::ByValue)]);
    let plan = |kernel: KernelCode, grid, group, values| {
        let planned = shape(grid, group, values).plan(&kernel, &AROUND);
        planned.unwrap_err().to_string()
    };
    let one = || vec![Value::from(1u32)];
    let (grid, group) = ([64, 1, 1], [64, 1, 1]);
    let mut required = plain();
    let mut uniform = plain();
    if let (Some(r), Some(u)) = (&mut required.metadata, &mut uniform.metadata) {
        r.required_group = Some([32, 1, 1]);
        u.uniform_group = true;
    }
    let mut bare = plain();
    bare.metadata = None;
    for (error, text) in [
        (plan(plain(), [0, 1, 1], group, one()), "in a dimension: 0"),
        (plan(plain(), grid, [64, 0, 1], one()), "in a dimension: 0"),
        (
            plan(plain(), grid, [64, 5, 1], one()),
            "of a work-group: 320 where 256",
        ),
        (
            plan(plain(), grid, [u16::MAX; 3], one()),
            "where 256 can be",
        ),
        (
            plan(required, grid, group, one()),
            "in a dimension: 64 where 32",
        ),
        (
            plan(uniform, [65, 1, 1], group, one()),
            "last work-group: 1 where 64",
        ),
        (
            plan(plain(), grid, group, vec![]),
            "0 arguments where the kernel has 1",
        ),
        (
            plan(bare, grid, group, one()),
            "1 arguments where the kernel has 0",
        ),
        (
            plan(plain(), grid, group, vec![1u64.into()]),
            "8 bytes where it has 4",
        ),
        (
            plan(plain(), grid, group, vec![Value::Address(1)]),
            "an address for 4 bytes",
        ),
        (
            plan(plain(), grid, group, vec![Value::Local(1)]),
            "takes no size",
        ),
        (
            plan(
                kernel(vec![argument(0, 4, ArgumentKind::DynamicShared)]),
                grid,
                group,
                vec![Value::Local(65409)],
            ),
            "group memory: 65537 where 65536",
        ),
    ] {
        assert!(error.contains(text), "{error}: {text}");
    }
}

#[test]
fn bytes_of_all_arguments_are_taken_as_they_are() {
    let mut bare = kernel(vec![]);
    bare.metadata = None;
    let raw = |bytes: &[u8]| Shape {
        raw: Some(bytes.to_vec()),
        ..shape([1; 3], [1; 3], vec![])
    };
    // The kernel does not say how many it has.
    assert_eq!(
        raw(&[1, 2, 3]).plan(&bare, &AROUND).unwrap().kernargs,
        [1, 2, 3]
    );
    bare.descriptor.kernarg_bytes = 4;
    assert_eq!(
        raw(&[1, 2, 3]).plan(&bare, &AROUND).unwrap().kernargs,
        [1, 2, 3, 0]
    );
    assert!(raw(&[0; 5]).plan(&bare, &AROUND).is_err());
    // A stack that nobody counted, and what the caller asks for.
    bare.descriptor.properties = 1 << 11;
    assert_eq!(raw(&[]).plan(&bare, &AROUND).unwrap().private_bytes, STACK);
    let more = Shape {
        private_bytes: 20000,
        ..raw(&[])
    };
    assert_eq!(more.plan(&bare, &AROUND).unwrap().private_bytes, 20000);
}
