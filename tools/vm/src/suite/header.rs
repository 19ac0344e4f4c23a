// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What an end-to-end test says about itself: `# key: value` comments at the top of the file.
//!
//! | key | meaning |
//! | --- | --- |
//! | `vm: OPTIONS` | options of `scripts/vm` for the VM that it runs in |
//! | `asic: NAME…` | run it once on each of these |
//! | `sched-policy: N…` | … and with each of these values of the module's `sched_policy`, which `KFD_SCHED_POLICY` tells it |
//! | `timeout: S` | its time in seconds |
//! | `fresh: REASON` | the driver is loaded anew, and the GPUs are reset, before it and after it |
//! | `last: REASON` | it is the last of its VM |
//! | `own-vm: REASON` | it gets a VM for itself |
//! | `expect-kmsg: REGEX` | kernel messages that match do not fail it |
//! | `allow-warnings: REASON` | kernel messages of level warning or error do not fail it |
//! | `not-on-debug: REASON` | skip it on the debug kernel |
//! | `only-on-debug: REASON` | leave it out elsewhere |

use crate::cli::MachineOptions;
use crate::complaints::Policy;
use anyhow::Context;
use clap::parser::ValueSource;
use clap::Args;
use clap::FromArgMatches;
use regex::Regex;
use std::time::Duration;

/// Memory of a VM where the test does not say. On the debug kernel, KASAN's shadow and kmemleak's records take their
/// part of it; elsewhere it is as much so that those that need a little more can share a VM with the others.
const MEMORY: &str = "3G";
/// Tests on this ASIC alone, and under a policy other than 0 if they run under that too, have one processor where they do
/// not say, or one in each NUMA node, so that each kind of test meets the driver both with processors side by side and with one that preempts. Under
/// emulation one costs less than two.
const ONE_PROCESSOR: &str = "gfx906";
/// A test's time where it does not say, in seconds.
const TIMEOUT: u64 = 120;

/// What the VMs of a run have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// They have the debug kernel.
    pub debug: bool,
    /// Their models give nothing that hardware does not promise.
    pub harsh: bool,
}

/// With whom a test shares its VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// With any other that asks for the same machine.
    #[default]
    Any,
    /// The same, though not the loaded driver and what the GPUs remember.
    Fresh,
    /// The same, if nobody comes after it.
    Last,
    /// With nobody.
    Own,
}

/// The header of one test.
#[derive(Clone, Debug)]
pub struct Header {
    /// Options of the VM as words.
    pub vm: Vec<String>,
    /// ASICs to run on; empty means what `vm` says.
    pub asics: Vec<String>,
    /// Scheduling policies to run under; empty means the module's default.
    pub sched_policies: Vec<u8>,
    /// Its time.
    pub timeout: Duration,
    /// With whom it shares its VM.
    pub sharing: Sharing,
    /// Which kernel messages count.
    pub policy: Policy,
    /// Why it does not run on the debug kernel.
    pub not_on_debug: Option<String>,
    /// It needs what only the debug kernel has.
    pub only_on_debug: bool,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            vm: Vec::new(),
            asics: Vec::new(),
            sched_policies: Vec::new(),
            timeout: Duration::from_secs(TIMEOUT),
            sharing: Sharing::Any,
            policy: Policy::default(),
            not_on_debug: None,
            only_on_debug: false,
        }
    }
}

impl Header {
    /// Reads the comment lines at the top of `text`; other comments are just that.
    ///
    /// # Errors
    /// A value that does not fit its key.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut header = Self::default();
        let comments = text.lines().map_while(|line| line.strip_prefix('#'));
        for line in comments {
            let Some((key, value)) = line.trim().split_once(':') else {
                continue;
            };
            let value = value.trim();
            match key {
                "vm" => {
                    let words = shlex::split(value).with_context(|| format!("vm: {value}"))?;
                    header.vm.extend(words);
                }
                "asic" => header.asics = value.split_whitespace().map(str::to_owned).collect(),
                "sched-policy" => {
                    let each: Result<_, _> = value.split_whitespace().map(str::parse).collect();
                    header.sched_policies =
                        each.with_context(|| format!("sched-policy: {value}"))?;
                }
                "timeout" => {
                    let seconds = value.parse().with_context(|| format!("timeout: {value}"))?;
                    header.timeout = Duration::from_secs(seconds);
                }
                "fresh" => header.sharing = Sharing::Fresh,
                "last" => header.sharing = Sharing::Last,
                "own-vm" => header.sharing = Sharing::Own,
                "expect-kmsg" => {
                    let regex =
                        Regex::new(value).with_context(|| format!("expect-kmsg: {value}"))?;
                    header.policy.expected.push(regex);
                }
                "allow-warnings" => header.policy.allow_warnings = true,
                "not-on-debug" => header.not_on_debug = Some(value.to_owned()),
                "only-on-debug" => header.only_on_debug = true,
                _ => {}
            }
        }
        header.machine(None, None, Conditions::default())?;
        Ok(header)
    }

    /// The options of the VM on that ASIC under that scheduling policy.
    ///
    /// # Errors
    /// Options that `scripts/vm` does not have, or that do not fit each other.
    pub fn machine(
        &self,
        asic: Option<&str>,
        sched_policy: Option<u8>,
        conditions: Conditions,
    ) -> anyhow::Result<MachineOptions> {
        let command = MachineOptions::augment_args(clap::Command::new("vm").no_binary_name(true));
        let mut words = self.vm.clone();
        if let Some(asic) = asic {
            words.extend(["--asic".to_owned(), asic.to_owned()]);
        }
        let matches = command
            .try_get_matches_from(&words)
            .with_context(|| format!("vm: {}", words.join(" ")))?;
        let mut options = MachineOptions::from_arg_matches(&matches)?;
        if let Some(policy) = sched_policy {
            let given = options.module_args;
            options.module_args = format!("{given} sched_policy={policy}").trim().to_owned();
        }
        options.debug_kernel |= conditions.debug;
        if conditions.harsh {
            options.make_harsh()?;
        }
        if matches.value_source("mem") == Some(ValueSource::DefaultValue) {
            options.mem = MEMORY.into();
        }
        // The run under policy 0 has processors side by side.
        let other = sched_policy.is_some_and(|policy| policy != 0);
        let again = other && self.sched_policies.contains(&0)
            || options.asic.iter().all(|asic| asic == ONE_PROCESSOR);
        if matches.value_source("smp") == Some(ValueSource::DefaultValue) && again {
            options.smp = options.numa;
        }
        options.check_nodes()?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "#!/bin/sh\n# SPDX-License-Identifier: GPL-2.0 OR MIT\n#\n# Two GPUs: both answer.\n\
                        # vm: --gpus 2 --module-args 'a=1 b=2'\n# asic: gfx90a gfx906\n# timeout: 30\n# sched-policy: 0 2\n\
                        # expect-kmsg: queue \\d+ was reset\n# own-vm: kills the model\necho # timeout: 1\n";

    #[test]
    fn keys_are_read_and_prose_is_not() {
        let header = Header::parse(TEXT).unwrap();
        assert_eq!(header.asics, ["gfx90a", "gfx906"]);
        assert_eq!(header.timeout, Duration::from_secs(30));
        assert!(header.sharing == Sharing::Own && !header.policy.allow_warnings);
        assert!(header.policy.expected[0].is_match("queue 12 was reset"));
        assert_eq!(header.sched_policies, [0, 2]);
        let debug = Conditions {
            debug: true,
            ..Conditions::default()
        };
        let machine = header.machine(Some("gfx906"), Some(2), debug).unwrap();
        assert_eq!(machine.models(), 2);
        assert_eq!(machine.module_args, "a=1 b=2 sched_policy=2");
        assert_eq!(machine.asic, ["gfx906"]);
        assert!(machine.debug_kernel);
        assert_eq!(machine.mem, "3G");
        let shared = |text| Header::parse(text).unwrap().sharing;
        assert_eq!(shared("# fresh: resets"), Sharing::Fresh);
        assert_eq!(shared("# last: kills"), Sharing::Last);
    }

    #[test]
    fn one_asic_and_other_policies_have_one_processor_unless_it_says() {
        let machine = |text: &str, asic, policy| {
            let header = Header::parse(text).unwrap();
            header.machine(asic, policy, Conditions::default()).unwrap()
        };
        let smp = |text: &str, asic| machine(text, asic, None).smp;
        let policies = "# sched-policy: 0 2";
        assert_eq!(machine(policies, Some("gfx90a"), None).smp, 2);
        assert_eq!(machine(policies, Some("gfx90a"), Some(2)).smp, 1);
        assert_eq!(machine("# sched-policy: 2", Some("gfx90a"), Some(2)).smp, 2);
        let two = format!("{policies}\n# vm: --smp 2");
        assert_eq!(machine(&two, Some("gfx90a"), Some(2)).smp, 2);
        assert_eq!(smp("", None), 2);
        assert_eq!(smp("# vm: --gpus 0", None), 2);
        assert_eq!(smp("", Some("gfx90a")), 2);
        assert_eq!(smp("", Some("gfx906")), 1);
        assert_eq!(smp("# vm: --asic gfx906", None), 1);
        assert_eq!(smp("# vm: --gpus 2 --asic gfx90a,gfx906", None), 2);
        assert_eq!(smp("# vm: --smp 3", Some("gfx906")), 3);
        assert_eq!(smp("# vm: --numa 2", Some("gfx906")), 2);
    }

    #[test]
    fn wrong_values_are_refused() {
        for text in [
            "# vm: --gpus 9",
            "# vm: --numa 2 --smp 3",
            "# vm: --no-such",
            "# vm: 'open",
            "# timeout: soon",
            "# sched-policy: fast",
            "# expect-kmsg: (",
        ] {
            assert!(Header::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_empty_header_is_one_gpu() {
        let header = Header::parse("#!/bin/sh\ntrue\n").unwrap();
        let machine = header.machine(None, None, Conditions::default());
        assert_eq!(machine.unwrap().models(), 1);
        assert_eq!(header.timeout, Duration::from_secs(TIMEOUT));
    }
}
