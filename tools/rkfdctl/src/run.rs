// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl run`: a kernel of a compiled file, from the shell.

mod value;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use rkfd::code::arguments::Value;
use rkfd::code::bundle;
use rkfd::code::dispatch::Dispatch;
use rkfd::code::dispatch::Kernargs;
use rkfd::code::object::CodeObject;
use rkfd::code::object::KernelCode;
use rkfd::code::program::Program;
use rkfd::code::target::Target;
use rkfd::device::Device;
use rkfd::error::Error;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use rkfd::signal::Signals;

use self::value::Given;
use self::value::Number;
use crate::style;

/// How often the queue is asked whether it has stopped.
const LOOK: Duration = Duration::from_millis(200);
/// More arguments than any kernel has.
const KERNARG_BYTES: usize = 1 << 16;

#[derive(clap::Args)]
pub struct Options {
    /// A code object, or a bundle of some (clang -target amdgcn-amd-amdhsa, clang -x hip, hipcc --genco)
    file: PathBuf,
    /// The kernel to run; without it, those in the file are listed
    #[arg(long)]
    kernel: Option<String>,
    /// Of a bundle that is listed, the part for this GPU, such as gfx90a
    #[arg(long, value_parser = target, conflicts_with = "kernel")]
    target: Option<Target>,
    /// Work-items in x, y and z
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = dimensions::<u32>)]
    grid: [u32; 3],
    /// Work-items of a work-group
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = dimensions::<u16>)]
    group: [u16; 3],
    /// Bytes of group memory beside the kernel's own
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    dynamic_lds: u32,
    /// The next argument: TYPE:NUMBER a number (u8 u32 i32 u64 f32 f64), TYPE:[NUMBER,…] a buffer with these, TYPE*COUNT a
    /// buffer of zeros, TYPE*COUNT=iota of 0, 1, 2…, local:BYTES group memory
    #[arg(long = "arg", value_name = "VALUE", value_parser = Given::parse)]
    arguments: Vec<Given>,
    /// How many numbers of each buffer are shown afterwards
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    show: usize,
    /// Number of the GPU
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Seconds that the kernel may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    limit: u64,
}

fn target(text: &str) -> Result<Target, String> {
    Target::from_name(text).ok_or_else(|| "not a target that is known".to_owned())
}

/// One to three numbers; those that are missing are 1.
fn dimensions<T: std::str::FromStr + From<u8> + Copy>(text: &str) -> Result<[T; 3], String> {
    let mut out = [T::from(1); 3];
    let parts: Vec<_> = text.split(',').collect();
    if parts.len() > 3 {
        return Err("three numbers at most".to_owned());
    }
    for (to, part) in out.iter_mut().zip(parts) {
        *to = part
            .trim()
            .parse()
            .map_err(|_| format!("{part:?} is no such number"))?;
    }
    Ok(out)
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let bytes =
        fs::read(&options.file).with_context(|| format!("reading {}", options.file.display()))?;
    match &options.kernel {
        None => list(options, &bytes)?,
        Some(name) => launch(options, &bytes, name)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the kernels; needs no GPU.
fn list(options: &Options, bytes: &[u8]) -> anyhow::Result<()> {
    let code = match &options.target {
        Some(target) => bundle::code_for(bytes, target)?,
        None => bytes,
    };
    let object = CodeObject::parse(code).with_context(|| format!("{}", options.file.display()))?;
    anstream::println!(
        "{} code object version {}, {}",
        style::head(object.target()),
        object.version(),
        style::bytes(object.bytes())
    );
    for kernel in object.kernels() {
        anstream::println!("{}", describe(kernel));
    }
    Ok(())
}

fn describe(kernel: &KernelCode) -> String {
    let descriptor = &kernel.descriptor;
    let mut text = format!(
        "{}  group {} B, private {} B{}",
        style::value(&kernel.name),
        descriptor.group_bytes,
        descriptor.private_bytes,
        if descriptor.uses_dynamic_stack() {
            " and a dynamic stack"
        } else {
            ""
        }
    );
    let Some(metadata) = &kernel.metadata else {
        return text + &format!(", {} B of arguments, no metadata", kernel.kernarg_bytes());
    };
    text += &format!(", {} SGPRs, {} VGPRs", metadata.sgprs, metadata.vgprs);
    let explicit = metadata.arguments.iter().filter(|a| !a.kind.is_hidden());
    for (n, argument) in explicit.enumerate() {
        let (kind, size, name) = (argument.kind.text(), argument.size, &argument.name);
        text += &format!("\n  {n}: {kind}, {size} bytes {}", style::dim(name));
    }
    text
}

/// Runs a kernel, and shows what its buffers have then.
fn launch(options: &Options, bytes: &[u8], name: &str) -> anyhow::Result<()> {
    let device = crate::open_gpu(options.gpu)?;
    let program =
        Program::load(&device, bytes).with_context(|| format!("{}", options.file.display()))?;
    let kernel = program.kernel(name)?;
    let queue = Queue::new(&device, QueueOptions::new(QueueKind::Aql))?;
    let kernargs = Kernargs::new(&device, KERNARG_BYTES)?;
    let done = Signals::new(&device, 1)?;
    done.store(0, 1)?;
    let mut dispatch = Dispatch::new(&kernel)
        .grid(options.grid)
        .group(options.group)
        .dynamic_group_bytes(options.dynamic_lds)
        .completion(done.address(0)?);
    let mut buffers = Vec::new();
    for given in &options.arguments {
        let value = match given {
            Given::Number(number) => Value::Bytes(number.bytes()),
            Given::Local(bytes) => Value::Local(*bytes),
            Given::Buffer { kind, bytes } => {
                let buffer = filled(&device, bytes)?;
                let value = Value::from(&buffer);
                buffers.push((*kind, bytes.len(), buffer));
                value
            }
        };
        dispatch = dispatch.argument(value);
    }
    let start = Instant::now();
    queue.dispatch(&dispatch, &kernargs)?;
    let limit = Duration::from_secs(options.limit);
    loop {
        let left = limit.saturating_sub(start.elapsed());
        match done.wait_below(0, 1, left.min(LOOK)) {
            Ok(_) => break,
            Err(Error::TimedOut { .. }) => {}
            Err(e) => return Err(e.into()),
        }
        if let Some(error) = queue.error() {
            // Only the model knows more than the driver is told.
            let told = crate::errors::of_kernel(options.gpu, name, &options.file);
            let lines: String = told
                .iter()
                .flat_map(|line| ["\n  ", line.as_str()])
                .collect();
            bail!("the queue stopped at {error}{lines}");
        }
        if left.is_zero() {
            bail!("the kernel has not ended within {limit:?}");
        }
    }
    let took = start.elapsed();
    anstream::println!("{} in {took:.1?}", style::good(name));
    for (n, (kind, size, buffer)) in buffers.iter().enumerate() {
        let mut bytes = vec![0; *size];
        buffer.read_bytes(0, &mut bytes)?;
        let numbers = Number::all(*kind, &bytes);
        let shown: Vec<_> = numbers
            .iter()
            .take(options.show)
            .map(Number::to_string)
            .collect();
        let more = if numbers.len() > options.show {
            " …"
        } else {
            ""
        };
        anstream::println!("buffer {n}: {}{more}", shown.join(" "));
    }
    Ok(())
}

fn filled(device: &Arc<Device>, bytes: &[u8]) -> anyhow::Result<Buffer> {
    let buffer = Buffer::new(device, Kind::Gtt, bytes.len())?;
    buffer.write_bytes(0, bytes)?;
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_are_one_to_three_numbers() {
        assert_eq!(dimensions::<u32>("7").unwrap(), [7, 1, 1]);
        assert_eq!(dimensions::<u16>("16, 8,2").unwrap(), [16, 8, 2]);
        for wrong in ["", "x", "1,2,3,4", "-1"] {
            assert!(dimensions::<u32>(wrong).is_err(), "{wrong}");
        }
        assert!(dimensions::<u16>("65536").is_err());
    }
}
