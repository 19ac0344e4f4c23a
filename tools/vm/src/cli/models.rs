// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The GPU models of a VM: how many there are, their options, and the memory that all of it takes.

use super::size::mebibytes;
use super::MachineOptions;
use anyhow::Context;

impl MachineOptions {
    /// The number of modelled GPUs.
    pub fn models(&self) -> u8 {
        self.gpus.unwrap_or(u8::from(self.passthrough.is_empty()))
    }

    /// The host's memory that it may come to use, in MiB: the guest's, and of each model its VRAM; where its
    /// size is the model's own choice, what tests touch of that, or all where the model itself writes it.
    pub fn footprint(&self) -> u64 {
        /// The model's usual VRAM.
        const USUAL: u64 = 1024;
        /// Of that.
        const TOUCHED: u64 = 512;
        let guest = self.mebibytes();
        let options = self.model_options().unwrap_or_default();
        let filled = options.iter().any(|word| word == "--noise-everywhere");
        let usual = if filled { USUAL } else { TOUCHED };
        let mut words = options.iter().rev();
        let mut vram = None;
        let mut value = None;
        // With more than one the model does not start.
        while let (Some(word), None) = (words.next(), vram) {
            vram = match word.strip_prefix("--vram") {
                Some("") => value.and_then(mebibytes),
                Some(rest) => rest.strip_prefix('=').and_then(mebibytes),
                None => None,
            };
            value = Some(word.as_str());
        }
        let models = u64::from(self.models());
        guest.saturating_add(vram.unwrap_or(usual).saturating_mul(models))
    }

    /// Has models give nothing that hardware does not promise: memory that nobody has written is noise, and an
    /// invalidation drops the range that it names and no more. What the options say of these themselves holds.
    ///
    /// # Errors
    /// Options of the models in which a quote is not closed.
    pub fn make_harsh(&mut self) -> anyhow::Result<()> {
        const OPTIONS: [&[&str]; 2] = [
            &["--noise-everywhere"],
            &["--invalidation-ranges", "size-bit"],
        ];
        let given = self.model_options()?;
        for words in OPTIONS {
            let named = |word: &String| word.split('=').next() == words.first().copied();
            if !given.iter().any(named) {
                self.model_args = format!("{} {}", self.model_args, words.join(" "));
            }
        }
        Ok(())
    }

    /// The options of each GPU model as words.
    pub(super) fn model_options(&self) -> anyhow::Result<Vec<String>> {
        let mut words = shlex::split(&self.model_args)
            .with_context(|| format!("--model-args {}: a quote is not closed", self.model_args))?;
        words.splice(0..0, self.driver.model_options());
        if let Some(vram) = &self.vram {
            words.extend(["--vram".to_owned(), vram.clone()]);
        }
        Ok(words)
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

    #[test]
    fn the_footprint_is_that_of_memory_and_vram() {
        for (words, mebibytes) in [
            ("", 2048 + 512),
            ("--gpus 0 --vram 8G", 2048),
            ("--mem 8G --gpus 2", 8192 + 2 * 512),
            ("--mem 512M --vram 2G --gpus 3", 512 + 3 * 2048),
            ("--vram 268435456", 2048 + 256),
            ("--vram 2G --model-args --vram=4G", 2048 + 2048),
            ("--model-args --vram=4G", 2048 + 4096),
            ("--model-args --noise-everywhere", 2048 + 1024),
            ("--model-args --noise-everywhere --vram 256M", 2048 + 256),
            ("--passthrough 0000:03:00.0", 2048),
            ("--passthrough 0000:03:00.0 --gpus 2", 2048 + 2 * 512),
        ] {
            let args = ["vm"].into_iter().chain(words.split_whitespace());
            let line = Line::try_parse_from(args).unwrap();
            assert_eq!(line.machine.footprint(), mebibytes, "{words}");
        }
    }

    #[test]
    fn harsh_models_keep_what_a_test_says() {
        let options = |words: &str| {
            let args = ["vm"].into_iter().chain(words.split_whitespace());
            let mut machine = Line::try_parse_from(args).unwrap().machine;
            machine.make_harsh().unwrap();
            (
                machine.model_options().unwrap().join(" "),
                machine.footprint(),
            )
        };
        let all = "--noise-everywhere --invalidation-ranges size-bit";
        assert_eq!(options(""), (all.into(), 2048 + 1024));
        let (found, mebibytes) = options("--vram 256M --model-args --noise-everywhere");
        assert_eq!(
            (found, mebibytes),
            (format!("{all} --vram 256M"), 2048 + 256)
        );
        for given in ["--invalidation-ranges=refuse", "--fault=slow"] {
            let (found, _) = options(&format!("--model-args {given}"));
            let rest = if given.starts_with("--inv") {
                &all[..18]
            } else {
                all
            };
            assert_eq!(found, format!("{given} {rest}"));
        }
    }
}
