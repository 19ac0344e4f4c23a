// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the compiler says of kernels: the MessagePack document of the note `NT_AMDGPU_METADATA`.
//!
//! Keys: "Code Object V4 Metadata" and later in `AMDGPUUsage` of LLVM. Keys that are not known here are passed over.

use rmpv::Value;

use super::error::CodeError;
use super::error::Result;

/// Depth that no compiler's document has.
const MOST_DEPTH: usize = 32;

/// A document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Its version.
    pub version: (u32, u32),
    /// The target that the code was compiled for, as `amdgcn-amd-amdhsa--gfx90a`; empty where it does not say.
    pub target: String,
    /// Its kernels.
    pub kernels: Vec<KernelMetadata>,
}

/// What it says of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelMetadata {
    /// Name in the source.
    pub name: String,
    /// Symbol of the descriptor, `NAME.kd`.
    pub symbol: String,
    /// Language, as `OpenCL C`; empty where it does not say.
    pub language: String,
    /// Its version.
    pub language_version: (u32, u32),
    /// Arguments, by offset, those that the source does not name included.
    pub arguments: Vec<ArgumentMetadata>,
    /// Bytes of all arguments.
    pub kernarg_bytes: u32,
    /// Their alignment.
    pub kernarg_align: u32,
    /// Bytes of group memory of the kernel's own variables.
    pub group_bytes: u32,
    /// Bytes of private memory of a work-item.
    pub private_bytes: u32,
    /// Work-items of a wave.
    pub wavefront_size: u32,
    /// Most work-items of a work-group; 0 where it does not say.
    pub max_group: u32,
    /// The only dimensions that a work-group may have.
    pub required_group: Option<[u32; 3]>,
    /// Scalar registers.
    pub sgprs: u32,
    /// Vector registers, accumulation registers among them.
    pub vgprs: u32,
    /// Accumulation registers.
    pub agprs: u32,
    /// All work-groups have to be whole.
    pub uniform_group: bool,
}

/// What it says of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentMetadata {
    /// Name in the source; empty where it does not say.
    pub name: String,
    /// Where it begins.
    pub offset: u32,
    /// How long it is.
    pub size: u32,
    /// What it is.
    pub kind: ArgumentKind,
    /// Alignment of what a pointer to group memory points to; 0 where it does not say.
    pub pointee_align: u32,
}

macro_rules! kinds {
    ($( $(#[$doc:meta])* $name:ident = $text:literal; )*) => {
        /// What an argument is.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum ArgumentKind {
            $( $(#[$doc])* $name, )*
            /// Another one.
            Other(String),
        }

        impl ArgumentKind {
            fn from_text(text: &str) -> Self {
                match text {
                    $( $text => Self::$name, )*
                    other => Self::Other(other.to_owned()),
                }
            }

            /// As the document has it.
            pub fn text(&self) -> &str {
                match self {
                    $( Self::$name => $text, )*
                    Self::Other(text) => text,
                }
            }
        }
    };
}

kinds! {
    /// Its bytes.
    ByValue = "by_value";
    /// Address of memory.
    GlobalBuffer = "global_buffer";
    /// Offset in group memory that the launch chooses the size of.
    DynamicShared = "dynamic_shared_pointer";
    /// Address of a sampler's descriptor.
    Sampler = "sampler";
    /// Address of an image's descriptor.
    Image = "image";
    /// Address of a pipe.
    Pipe = "pipe";
    /// Address of a queue.
    Queue = "queue";
    /// First work-item in x.
    GlobalOffsetX = "hidden_global_offset_x";
    /// First work-item in y.
    GlobalOffsetY = "hidden_global_offset_y";
    /// First work-item in z.
    GlobalOffsetZ = "hidden_global_offset_z";
    /// Nothing.
    HiddenNone = "hidden_none";
    /// Address of the buffer of OpenCL's printf.
    PrintfBuffer = "hidden_printf_buffer";
    /// Address of the buffer by which kernels call the host.
    HostcallBuffer = "hidden_hostcall_buffer";
    /// Address of the queue for kernels' own launches.
    DefaultQueue = "hidden_default_queue";
    /// What such a launch does at its end.
    CompletionAction = "hidden_completion_action";
    /// Address of what several GPUs synchronise by.
    MultigridSync = "hidden_multigrid_sync_arg";
    /// Whole work-groups in x.
    BlockCountX = "hidden_block_count_x";
    /// Whole work-groups in y.
    BlockCountY = "hidden_block_count_y";
    /// Whole work-groups in z.
    BlockCountZ = "hidden_block_count_z";
    /// Work-items of a work-group in x.
    GroupSizeX = "hidden_group_size_x";
    /// Work-items of a work-group in y.
    GroupSizeY = "hidden_group_size_y";
    /// Work-items of a work-group in z.
    GroupSizeZ = "hidden_group_size_z";
    /// Work-items of the last work-group in x, if it is not whole.
    RemainderX = "hidden_remainder_x";
    /// Work-items of the last work-group in y, if it is not whole.
    RemainderY = "hidden_remainder_y";
    /// Work-items of the last work-group in z, if it is not whole.
    RemainderZ = "hidden_remainder_z";
    /// Dimensions.
    GridDims = "hidden_grid_dims";
    /// Address of the heap.
    Heap = "hidden_heap_v1";
    /// Bytes of group memory that the launch adds.
    DynamicLdsSize = "hidden_dynamic_lds_size";
    /// High half of the base of private memory.
    PrivateBase = "hidden_private_base";
    /// High half of the base of group memory.
    SharedBase = "hidden_shared_base";
    /// Address of the queue's `amd_queue_t`.
    QueuePtr = "hidden_queue_ptr";
}

impl ArgumentKind {
    /// Whether the source does not name it, so that the launch fills it in.
    pub fn is_hidden(&self) -> bool {
        self.text().starts_with("hidden_")
    }
}

fn wrong(what: impl Into<String>) -> CodeError {
    CodeError::Metadata(what.into())
}

fn get<'v>(map: &'v Value, key: &str) -> Option<&'v Value> {
    let found = map.as_map()?.iter().find(|(k, _)| k.as_str() == Some(key));
    found.map(|(_, value)| value)
}

fn text(map: &Value, key: &str) -> Result<Option<String>> {
    match get(map, key) {
        None => Ok(None),
        Some(value) => match value.as_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(wrong(format!("{key} is no text"))),
        },
    }
}

fn as_number(value: &Value, key: &str) -> Result<u32> {
    value
        .as_u64()
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| wrong(format!("{key} is no number of 32 bits")))
}

fn number(map: &Value, key: &str) -> Result<Option<u32>> {
    get(map, key).map(|value| as_number(value, key)).transpose()
}

fn needed(map: &Value, key: &str) -> Result<u32> {
    number(map, key)?.ok_or_else(|| wrong(format!("no {key}")))
}

fn list<'v>(map: &'v Value, key: &str) -> Result<&'v [Value]> {
    match get(map, key) {
        None => Ok(&[]),
        Some(value) => value
            .as_array()
            .map(Vec::as_slice)
            .ok_or_else(|| wrong(format!("{key} is no list"))),
    }
}

fn numbers<const N: usize>(map: &Value, key: &str) -> Result<Option<[u32; N]>> {
    let found = list(map, key)?;
    if found.is_empty() {
        return Ok(None);
    }
    let mut out = [0; N];
    if found.len() != N {
        return Err(wrong(format!("{key} has {} numbers, not {N}", found.len())));
    }
    for (to, from) in out.iter_mut().zip(found) {
        *to = as_number(from, key)?;
    }
    Ok(Some(out))
}

fn pair(map: &Value, key: &str) -> Result<Option<(u32, u32)>> {
    Ok(numbers::<2>(map, key)?.map(|[major, minor]| (major, minor)))
}

impl Metadata {
    /// Reads a document.
    ///
    /// # Errors
    /// [`CodeError::Metadata`].
    pub fn parse(mut bytes: &[u8]) -> Result<Self> {
        let root = rmpv::decode::read_value_with_max_depth(&mut bytes, MOST_DEPTH)
            .map_err(|e| wrong(e.to_string()))?;
        if root.as_map().is_none() {
            return Err(wrong("the document is no map"));
        }
        let kernels = list(&root, "amdhsa.kernels")?;
        Ok(Self {
            version: pair(&root, "amdhsa.version")?.ok_or_else(|| wrong("no amdhsa.version"))?,
            target: text(&root, "amdhsa.target")?.unwrap_or_default(),
            kernels: kernels.iter().map(kernel).collect::<Result<_>>()?,
        })
    }

    /// What it says of the kernel whose descriptor has that symbol.
    pub fn kernel(&self, symbol: &str) -> Option<&KernelMetadata> {
        self.kernels.iter().find(|k| k.symbol == symbol)
    }
}

fn kernel(map: &Value) -> Result<KernelMetadata> {
    let kernarg_bytes = needed(map, ".kernarg_segment_size")?;
    let kernarg_align = number(map, ".kernarg_segment_align")?.unwrap_or(1);
    if !kernarg_align.is_power_of_two() || kernarg_align > 4096 {
        return Err(wrong(format!(".kernarg_segment_align is {kernarg_align}")));
    }
    let mut arguments = Vec::new();
    for from in list(map, ".args")? {
        let argument = ArgumentMetadata {
            name: text(from, ".name")?.unwrap_or_default(),
            offset: needed(from, ".offset")?,
            size: needed(from, ".size")?,
            kind: ArgumentKind::from_text(
                &text(from, ".value_kind")?.ok_or_else(|| wrong("no .value_kind"))?,
            ),
            pointee_align: number(from, ".pointee_align")?.unwrap_or(0),
        };
        let end = argument.offset.checked_add(argument.size);
        if end.is_none_or(|end| end > kernarg_bytes) {
            return Err(wrong(format!(
                "an argument of {} bytes at {} of {kernarg_bytes}",
                argument.size, argument.offset
            )));
        }
        arguments.push(argument);
    }
    // By offset, and none over another: a launch fills them one after the other.
    arguments.sort_by_key(|a| a.offset);
    for pair in arguments.windows(2) {
        if let [a, b] = pair {
            if a.offset + a.size > b.offset {
                return Err(wrong(format!("arguments overlap at {}", b.offset)));
            }
        }
    }
    Ok(KernelMetadata {
        name: text(map, ".name")?.ok_or_else(|| wrong("a kernel without .name"))?,
        symbol: text(map, ".symbol")?.ok_or_else(|| wrong("a kernel without .symbol"))?,
        language: text(map, ".language")?.unwrap_or_default(),
        language_version: pair(map, ".language_version")?.unwrap_or_default(),
        arguments,
        kernarg_bytes,
        kernarg_align,
        group_bytes: number(map, ".group_segment_fixed_size")?.unwrap_or(0),
        private_bytes: number(map, ".private_segment_fixed_size")?.unwrap_or(0),
        wavefront_size: number(map, ".wavefront_size")?.unwrap_or(64),
        max_group: number(map, ".max_flat_workgroup_size")?.unwrap_or(0),
        required_group: numbers(map, ".reqd_workgroup_size")?,
        sgprs: number(map, ".sgpr_count")?.unwrap_or(0),
        vgprs: number(map, ".vgpr_count")?.unwrap_or(0),
        agprs: number(map, ".agpr_count")?.unwrap_or(0),
        uniform_group: number(map, ".uniform_work_group_size")?.unwrap_or(0) != 0,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(pairs: Vec<(&str, Value)>) -> Value {
        Value::Map(pairs.into_iter().map(|(k, v)| (k.into(), v)).collect())
    }

    fn argument(offset: u32, size: u32, kind: &str) -> Value {
        map(vec![
            (".offset", offset.into()),
            (".size", size.into()),
            (".value_kind", kind.into()),
        ])
    }

    fn document(args: Vec<Value>, more: Vec<(&str, Value)>) -> Vec<u8> {
        let mut kernel = vec![
            (".name", "k".into()),
            (".symbol", "k.kd".into()),
            (".kernarg_segment_size", 16.into()),
            (".args", Value::Array(args)),
        ];
        kernel.extend(more);
        let root = map(vec![
            ("amdhsa.version", Value::Array(vec![1.into(), 2.into()])),
            ("amdhsa.target", "amdgcn-amd-amdhsa--gfx906".into()),
            ("amdhsa.kernels", Value::Array(vec![map(kernel)])),
            ("unknown", Value::Nil),
        ]);
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &root).unwrap();
        bytes
    }

    #[test]
    fn a_document_is_read() {
        let bytes = document(
            vec![
                argument(8, 4, "hidden_block_count_x"),
                argument(0, 8, "global_buffer"),
                argument(12, 2, "a_new_one"),
            ],
            vec![
                (".wavefront_size", 64.into()),
                (
                    ".reqd_workgroup_size",
                    Value::Array(vec![64.into(), 1.into(), 1.into()]),
                ),
                (".uniform_work_group_size", 1.into()),
            ],
        );
        let metadata = Metadata::parse(&bytes).unwrap();
        assert_eq!(metadata.version, (1, 2));
        assert_eq!(metadata.target, "amdgcn-amd-amdhsa--gfx906");
        let kernel = metadata.kernel("k.kd").unwrap();
        assert_eq!(kernel.required_group, Some([64, 1, 1]));
        assert!(kernel.uniform_group);
        let kinds: Vec<_> = kernel.arguments.iter().map(|a| a.kind.text()).collect();
        assert_eq!(
            kinds,
            ["global_buffer", "hidden_block_count_x", "a_new_one"]
        );
        assert!(kernel.arguments[1].kind.is_hidden() && !kernel.arguments[0].kind.is_hidden());
        assert!(metadata.kernel("k").is_none());
    }

    #[test]
    fn documents_that_cannot_be_are_refused() {
        for (bytes, text) in [
            (vec![], "Metadata: "),
            (vec![0xc0], "no map"),
            (vec![0x80], "no amdhsa.version"),
            (
                document(vec![argument(12, 8, "by_value")], vec![]),
                "8 bytes at 12 of 16",
            ),
            (
                document(vec![argument(u32::MAX, 8, "by_value")], vec![]),
                "of 16",
            ),
            (
                document(
                    vec![argument(0, 8, "by_value"), argument(4, 8, "by_value")],
                    vec![],
                ),
                "overlap at 4",
            ),
            (document(vec![map(vec![])], vec![]), "no .offset"),
            (
                document(vec![], vec![(".wavefront_size", "64".into())]),
                "no number",
            ),
            (
                document(vec![], vec![(".kernarg_segment_align", 3.into())]),
                "align is 3",
            ),
            (
                document(
                    vec![],
                    vec![(".reqd_workgroup_size", Value::Array(vec![1.into()]))],
                ),
                "1 numbers, not 3",
            ),
        ] {
            let error = Metadata::parse(&bytes).unwrap_err().to_string();
            assert!(error.contains(text), "{error}: {text}");
        }
        // Lists in lists, deeper than any stack.
        assert!(Metadata::parse(&[0x91; 1 << 16]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Metadata::parse(&bytes);
        }

        #[test]
        fn a_document_that_was_changed_is_read_or_refused(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = document(vec![argument(0, 8, "global_buffer")], vec![(".sgpr_count", 8.into())]);
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let _ = Metadata::parse(&bytes);
            let _ = Metadata::parse(&bytes[..cut.index(bytes.len())]);
        }
    }
}
