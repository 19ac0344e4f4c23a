// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The NUMA nodes of a VM, which are alike.

use super::size::mebibytes;
use super::MachineOptions;

impl MachineOptions {
    /// Guest memory in MiB.
    pub(super) fn mebibytes(&self) -> u64 {
        mebibytes(&self.mem).unwrap_or(0)
    }

    /// Checks that each node can have as many processors and as much memory as any other.
    ///
    /// # Errors
    /// The option that does not fit `--numa`.
    pub fn check_nodes(&self) -> anyhow::Result<()> {
        let nodes = self.numa;
        anyhow::ensure!(
            self.smp % nodes == 0,
            "--numa {nodes} needs as many processors in each node: --smp {} does not divide evenly",
            self.smp
        );
        anyhow::ensure!(
            self.mebibytes() % u64::from(nodes) == 0,
            "--numa {nodes} needs as many MiB in each node: --mem {} does not divide evenly",
            self.mem
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        machine: MachineOptions,
    }

    fn options(words: &str) -> Result<MachineOptions, clap::Error> {
        let args = ["vm"].into_iter().chain(words.split_whitespace());
        Line::try_parse_from(args).map(|line| line.machine)
    }

    #[test]
    fn nodes_that_can_be_alike_are_taken() {
        assert_eq!(options("").unwrap().numa, 1);
        for words in [
            "",
            "--smp 1",
            "--smp 3 --mem 513M",
            "--numa 1 --smp 3",
            "--numa 2",
            "--numa 2 --smp 4 --mem 3G",
            "--numa 2 --gpus 0",
            "--numa 2 --gpus 3",
        ] {
            options(words).unwrap().check_nodes().unwrap();
        }
    }

    #[test]
    fn others_are_refused_with_the_option_that_does_not_fit() {
        for (words, option) in [
            ("--numa 2 --smp 1", "--smp 1"),
            ("--numa 2 --smp 3", "--smp 3"),
            ("--numa 2 --mem 513M", "--mem 513M"),
        ] {
            let error = options(words).unwrap().check_nodes().unwrap_err();
            assert!(error.to_string().contains(option), "{error}");
        }
        for words in ["--numa 0", "--numa 3", "--numa two"] {
            let error = options(words).unwrap_err().to_string();
            assert!(error.contains("--numa"), "{error}");
        }
    }
}
