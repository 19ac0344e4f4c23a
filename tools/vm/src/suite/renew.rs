// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Between two tests of a VM that do not share the loaded driver: unload, reset the GPUs, load.

use super::e2e::ask;
use super::e2e::model_errors;
use super::filter::UNLOAD;
use super::job::Job;
use super::output::Collector;
use super::report::Suite;
use super::Runner;
use crate::cli;
use crate::complaints::Policy;
use crate::guest::module::stub_args;
use crate::protocol::Ending;
use crate::protocol::Exec;
use crate::session::Outcome;
use crate::session::Session;
use std::time::Duration;
use std::time::Instant;

/// Bound of one step; unloading itself may wait for 30 seconds.
const LIMIT: Duration = Duration::from_secs(240);

/// Unloads what is loaded. Closing files is deferred work in the kernel, but not for long.
const UNLOAD_SCRIPT: &str = r#"
[ ! -d /sys/module/amdgpu ] || rmmod amdgpu || exit
[ -d /sys/module/rkfd ] || exit 0
try=0
while [ $try -lt 300 ]; do
	why=$(rmmod rkfd 2>&1) && exit
	try=$((try + 1))
	sleep 0.1
done
echo "$why"
exit 1
"#;

/// Puts the GPUs into the state after power-on and drops what earlier tests left behind them.
const RESET_SCRIPT: &str = r#"
for device in /sys/bus/pci/devices/*; do
	read -r vendor <"$device/vendor" && [ "$vendor" = 0x1002 ] || continue
	echo 1 >"$device/reset" || exit
done
rm -rf /tmp/*
dmesg -C
[ ! -e /sys/kernel/tracing/trace ] || : >/sys/kernel/tracing/trace
"#;

/// Loads the driver: the module, its parameters, the module beside it and its parameters.
const LOAD_SCRIPT: &str = r#"
insmod "$1" $2 && { [ -z "$3" ] || insmod "$3" $4; }
"#;

impl Runner {
    /// Whether the driver has to be loaded anew between two tests.
    pub(super) fn is_renewed(&self, before: &Job, next: &Job) -> bool {
        before.args(self.conditions()) != next.args(self.conditions())
            || before.is_fresh()
            || next.is_fresh()
    }

    /// Unloads the driver and reports that as the end of a VM: `names` are the tests since it was loaded.
    /// Whether the VM can be used further.
    pub(super) fn unload(&self, session: &mut Session, names: &[String], policy: Policy) -> bool {
        let start = Instant::now();
        session.set_policy(policy);
        let mut wrong = self.script(session, "unload", UNLOAD_SCRIPT, &[]);
        let usable = wrong.is_none();
        let complaints = session.take_complaints();
        let mut complaints: Vec<String> = complaints.iter().map(ToString::to_string).collect();
        for (index, control) in session.controls().iter().enumerate() {
            complaints.extend(model_errors(control, index));
        }
        if !complaints.is_empty() {
            wrong
                .get_or_insert_default()
                .push_str(&complaints.join("\n"));
        }
        let first = names.first().map_or("", String::as_str);
        let failure = wrong.map(|wrong| format!("after {}:\n{wrong}", names.join(", ")));
        self.add(&Suite::check(
            &format!("{UNLOAD}{}", first.trim_start_matches("e2e/")),
            start.elapsed(),
            Some(session.log_dir().to_owned()),
            failure,
        ));
        usable
    }

    /// Loads the driver for a test, after a reset of the GPUs if they may not be as after power-on.
    ///
    /// # Errors
    /// Why that does not work.
    pub(super) fn load(&self, session: &mut Session, job: &Job, reset: bool) -> Result<(), String> {
        session.set_policy(job.policy());
        if reset {
            for control in session.controls() {
                // A model that does not answer does not serve its device either.
                let _ = ask(&control, "{\"cmd\":\"clear-faults\"}");
            }
            if let Some(why) = self.script(session, "reset", RESET_SCRIPT, &[]) {
                return Err(format!("the GPUs cannot be reset: {why}"));
            }
            for control in session.controls() {
                // What a device without a driver met is no test's.
                let _ = ask(&control, "{\"cmd\":\"clear-errors\"}");
            }
        }
        let module = self.places.out.join("module");
        let stub = module.join("amdgpu.ko");
        let stub = if stub.exists() {
            stub.display().to_string()
        } else {
            String::new()
        };
        let args = [
            module.join("rkfd.ko").display().to_string(),
            job.args(self.conditions()),
            stub,
            stub_args(&job.args(self.conditions())),
        ];
        let why = self.script(session, "load", LOAD_SCRIPT, &args);
        why.map_or(Ok(()), |why| {
            Err(format!("the driver cannot be loaded: {why}"))
        })
    }

    /// Runs a script in the guest; what it printed, if it failed.
    fn script(
        &self,
        session: &mut Session,
        what: &str,
        script: &str,
        args: &[String],
    ) -> Option<String> {
        let mut argv: Vec<String> = ["sh", "-c", script, "sh"].map(str::to_owned).into();
        argv.extend_from_slice(args);
        let exec = Exec {
            argv,
            cwd: "/".into(),
            env: cli::environment(&self.places, 0),
            stdin: false,
            tty: None,
            label: what.to_owned(),
        };
        let mut printed = Collector::new();
        let outcome = session.exec(exec, Some(LIMIT), &mut |stream, data| {
            printed.add(stream, data);
        });
        if outcome == Outcome::Ended(Ending::Code(0)) {
            return None;
        }
        Some(format!("{outcome:?}\n{}", printed.finish().text()))
    }
}
