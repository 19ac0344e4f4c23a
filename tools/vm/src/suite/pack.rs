// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which tests share a VM.
//!
//! Tests that ask for the same machine can share one, whatever parameters they want for the module: it is loaded anew
//! between them. As many VMs are filled as keep all workers busy to the end.

use super::header::Conditions;
use super::header::Sharing;
use super::job::Job;
use super::times::Times;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// VMs that each worker gets at least, where there is work enough: so many that the last ones end at about one time.
const VMS_PER_WORKER: u32 = 3;
/// How many times the cost of a VM its tests are worth at least, else they rather join another one.
const WORTH: u32 = 4;

/// Puts jobs into VMs, each with its jobs in the order in which they run.
pub(super) fn pack(
    jobs: Vec<Job>,
    times: &Times,
    workers: usize,
    conditions: Conditions,
) -> Vec<Vec<Job>> {
    let weight = |jobs: &[Job]| -> Duration { jobs.iter().map(|job| times.of(job.name())).sum() };
    let workers = u32::try_from(workers.max(1)).unwrap_or(1);
    let share = (weight(&jobs) / (workers * VMS_PER_WORKER)).max(times.of_vm() * WORTH);
    let mut machines: BTreeMap<String, Vec<Job>> = BTreeMap::new();
    for job in jobs {
        machines.entry(job.key(conditions)).or_default().push(job);
    }
    machines
        .into_values()
        .flat_map(|jobs| fill(jobs, share, times, conditions))
        .collect()
}

/// Divides jobs that could all share one VM.
fn fill(jobs: Vec<Job>, share: Duration, times: &Times, conditions: Conditions) -> Vec<Vec<Job>> {
    let of = |job: &Job| times.of(job.name());
    let shared = jobs.iter().filter(|job| job.sharing() != Sharing::Own);
    let total: Duration = shared.map(of).sum();
    let kind = |wanted| {
        jobs.iter()
            .filter(move |job| job.sharing() == wanted)
            .cloned()
    };
    let (mut plain, mut fresh): (Vec<Job>, Vec<Job>) =
        (kind(Sharing::Any).collect(), kind(Sharing::Fresh).collect());
    let last: Vec<Job> = kind(Sharing::Last).collect();
    let mut own: Vec<Vec<Job>> = kind(Sharing::Own).map(|job| vec![job]).collect();
    let wanted = total.as_secs_f64() / share.as_secs_f64().max(1.0);
    // CAST: A few dozen.
    let count = (wanted.ceil() as usize).max(last.len()).max(1);

    let mut vms: Vec<(Duration, Vec<Job>)> = vec![Default::default(); count];
    for (vm, job) in vms.iter_mut().zip(last) {
        vm.0 += of(&job);
        vm.1.push(job);
    }
    let lightest = |vms: &[(Duration, Vec<Job>)]| {
        let times = vms.iter().enumerate();
        times.min_by_key(|(_, vm)| vm.0).map_or(0, |(at, _)| at)
    };
    fresh.sort_by_key(|job| (Reverse(of(job)), job.name().to_owned()));
    for job in fresh {
        if let Some(vm) = {
            let at = lightest(&vms);
            vms.get_mut(at)
        } {
            vm.0 += of(&job);
            vm.1.push(job);
        }
    }
    // Neighbours with the same parameters need no load between them: each VM takes a piece of the row.
    plain.sort_by_key(|job| (job.args(conditions), job.name().to_owned()));
    let mut rest: Duration = plain.iter().map(of).sum();
    let mut row = plain.into_iter().peekable();
    for at in 0..count {
        let others: Duration = vms.iter().skip(at).map(|vm| vm.0).sum();
        // CAST: A few dozen.
        let share = (rest + others) / (count - at) as u32;
        let Some((time, jobs)) = vms.get_mut(at) else {
            break;
        };
        while let Some(job) = row.next_if(|job| at + 1 == count || *time + of(job) / 2 <= share) {
            *time += of(&job);
            rest -= of(&job);
            jobs.push(job);
        }
    }
    let order = |job: &Job| {
        let place = match job.sharing() {
            Sharing::Any => 0,
            Sharing::Fresh => 1,
            Sharing::Own | Sharing::Last => 2,
        };
        (place, job.args(conditions), job.name().to_owned())
    };
    for (_, jobs) in &mut vms {
        jobs.sort_by_key(order);
    }
    own.extend(vms.into_iter().map(|(_, jobs)| jobs));
    own.retain(|jobs| !jobs.is_empty());
    own
}

#[cfg(test)]
mod tests {
    use super::super::header::Header;
    use super::super::job::jobs;
    use super::*;
    use std::path::Path;

    fn some(name: &str, header: &str) -> Vec<Job> {
        let header = Header::parse(header).unwrap();
        jobs(&format!("e2e/{name}"), Path::new("/t"), &header)
    }

    fn names(vms: &[Vec<Job>]) -> Vec<Vec<&str>> {
        let mut all = Vec::new();
        for jobs in vms {
            let names = jobs.iter().map(Job::name);
            all.push(names.map(|name| name.trim_start_matches("e2e/")).collect());
        }
        all
    }

    #[test]
    fn parameters_of_the_module_separate_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let mut times = Times::load(dir.path(), false);
        let all = [
            some("z", "# sched-policy: 0 2\n# vm: --smp 2\n"),
            some("a", "# sched-policy: 0 2\n# vm: --smp 2\n"),
            some("f", "# fresh: it resets the GPU\n# vm: --module-args x=1\n"),
            some("o", "# own-vm: it breaks\n"),
            some("g", "# vm: --gpus 2\n"),
            some("l", "# last: it kills the model\n"),
            some("m", "# vm: --mem 3G\n"),
        ];
        let all = all.concat();
        for job in &all {
            times.note(job.name(), Duration::from_secs(1));
        }
        let vms = pack(all, &times, 3, Conditions::default());
        assert_eq!(
            names(&vms),
            [
                vec!["o"],
                vec![
                    "a",
                    "m",
                    "z",
                    "a (sched_policy=2)",
                    "z (sched_policy=2)",
                    "f",
                    "l"
                ],
                vec!["g"],
            ]
        );
    }

    #[test]
    fn processors_separate_the_policies() {
        let dir = tempfile::tempdir().unwrap();
        let times = Times::load(dir.path(), false);
        let all = [
            some("z", "# sched-policy: 0 2\n"),
            some("a", "# sched-policy: 0 2\n"),
        ];
        let vms = pack(all.concat(), &times, 3, Conditions::default());
        let mut names = names(&vms);
        names.sort();
        assert_eq!(
            names,
            [
                vec!["a", "z"],
                vec!["a (sched_policy=2)", "z (sched_policy=2)"]
            ]
        );
    }

    #[test]
    fn nobody_is_left_out_and_no_vm_is_overfull() {
        let dir = tempfile::tempdir().unwrap();
        let mut times = Times::load(dir.path(), false);
        let mut all = Vec::new();
        for number in 0..60_u64 {
            let header = ["", "# fresh: x\n", "# last: x\n"]
                [usize::from(number % 7 == 0) + usize::from(number % 21 == 0)];
            let jobs = some(&format!("t{number:02}"), header);
            times.note(jobs[0].name(), Duration::from_secs(3 + number % 9));
            all.extend(jobs);
        }
        let vms = pack(all.clone(), &times, 3, Conditions::default());
        let mut found: Vec<&str> = vms.iter().flatten().map(Job::name).collect();
        found.sort_unstable();
        assert_eq!(found, all.iter().map(Job::name).collect::<Vec<_>>());
        let weight =
            |jobs: &Vec<Job>| -> Duration { jobs.iter().map(|job| times.of(job.name())).sum() };
        let (most, least) = (
            vms.iter().map(weight).max().unwrap(),
            vms.iter().map(weight).min().unwrap(),
        );
        assert!(
            vms.len() >= 9 && most < least * 2,
            "{} VMs of {least:?} to {most:?}",
            vms.len()
        );
        for jobs in &vms {
            let lasts = jobs.iter().filter(|job| job.sharing() == Sharing::Last);
            assert!(lasts.count() <= 1);
        }
    }
}
