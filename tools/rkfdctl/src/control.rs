// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The device model's control port.
//!
//! One JSON object per line each way. Inside a VM it is the virtio-serial port named `rkfd.control.N`, N counting the
//! models by PCI address; on the host it is a Unix socket. A real card has none.

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::poll::PollTimeout;
use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

/// How long the model may stay silent before and within an answer.
const LIMIT: Duration = Duration::from_secs(60);
/// Answers of others that are passed over before one's own has to come.
const STRANGE: usize = 16;
/// Longest answer that is read, in bytes.
const LONGEST: usize = 64 << 20;

/// One packet as the GPU saw it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Record {
    /// Running number.
    #[serde(default)]
    pub seq: u64,
    /// The model's clock.
    #[serde(default)]
    pub t_ns: u64,
    /// `HIQ`, `KIQ`, `compute`, `sdma`...
    pub ring: String,
    /// VMID it ran in.
    #[serde(default)]
    pub vmid: Option<u32>,
    /// PASID of its process.
    #[serde(default)]
    pub pasid: Option<u32>,
    /// Doorbell of its queue.
    #[serde(default)]
    pub doorbell: Option<u64>,
    /// Name of the packet.
    #[serde(alias = "name", default)]
    pub packet: String,
    /// Its fields.
    #[serde(default)]
    pub fields: Value,
    /// Decoded, one line.
    #[serde(default)]
    pub text: String,
    /// Its dwords.
    #[serde(default)]
    pub raw: Vec<u32>,
}

/// What happened in a stretch of time, and how it ended.
#[derive(Debug)]
pub struct Window {
    /// Nanoseconds of the model's clock; nothing that is younger is missing.
    pub start: u64,
    /// The same: now.
    pub end: u64,
    /// The packets, oldest first.
    pub records: Vec<Record>,
    /// The answer to `queues` at the end.
    pub queues: Value,
}

/// An open control port.
#[derive(Debug)]
pub struct Control {
    fd: File,
    rest: Vec<u8>,
    /// Requests so far.
    count: u64,
}

impl Control {
    /// The port of the model at PCI address `address`, or `None` where that device has none.
    ///
    /// # Errors
    /// Where the port exists and cannot be opened.
    pub fn of_pci(address: &str) -> anyhow::Result<Option<Self>> {
        let models = model_addresses(Path::new("/sys/bus/pci/devices"));
        let Some(index) = models.iter().position(|a| a == address) else {
            return Ok(None);
        };
        match find_port(Path::new("/sys/class/virtio-ports"), index) {
            Some(port) => Self::open(&Path::new("/dev").join(port)).map(Some),
            None => Ok(None),
        }
    }

    /// The port of model number `index`, whether or not a driver is bound to it.
    ///
    /// # Errors
    /// Where there is no such port, or it cannot be opened.
    pub fn of_index(index: usize) -> anyhow::Result<Self> {
        match find_port(Path::new("/sys/class/virtio-ports"), index) {
            Some(port) => Self::open(&Path::new("/dev").join(port)),
            None => bail!("there is no control port of a model {index}"),
        }
    }

    /// Opens a port or a Unix socket.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let name = || format!("control port {}", path.display());
        let socket = fs::metadata(path)
            .with_context(name)?
            .file_type()
            .is_socket();
        let fd = if socket {
            let stream = UnixStream::connect(path).with_context(name)?;
            stream.set_nonblocking(true).with_context(name)?;
            File::from(OwnedFd::from(stream))
        } else {
            // CAST: O_NONBLOCK is a small positive constant.
            let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
            OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(flags)
                .open(path)
                .with_context(name)?
        };
        let mut control = Self {
            fd,
            rest: Vec::new(),
            count: 0,
        };
        control.drain().with_context(name)?;
        Ok(control)
    }

    /// Drops what an earlier client left unread.
    fn drain(&mut self) -> io::Result<()> {
        let mut buf = [0; 4096];
        for _ in 0..LONGEST / buf.len() {
            match self.fd.read(&mut buf) {
                Ok(0) => break,
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn wait(&self, for_what: PollFlags, until: Instant) -> anyhow::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let ms = u16::try_from(left.as_millis()).unwrap_or(u16::MAX);
        let mut fds = [PollFd::new(self.fd.as_fd(), for_what)];
        match nix::poll::poll(&mut fds, PollTimeout::from(ms)) {
            Ok(0) if Instant::now() >= until => {
                bail!("the model did not answer within {} s", LIMIT.as_secs())
            }
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Sends one request and reads its answer.
    ///
    /// # Errors
    /// Where the model refuses (with its reason), answers nonsense, or not in time.
    pub fn request(&mut self, request: &Value) -> anyhow::Result<Value> {
        let until = Instant::now() + LIMIT;
        self.count += 1;
        let id = Value::from(format!("{}.{}", std::process::id(), self.count));
        let mut numbered = request.clone();
        if let Some(members) = numbered.as_object_mut() {
            members.insert("id".into(), id.clone());
        }
        let mut line = serde_json::to_vec(&numbered)?;
        line.push(b'\n');
        let mut out = &line[..];
        while !out.is_empty() {
            match self.fd.write(out) {
                Ok(n) => out = out.get(n..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::POLLOUT, until)?
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        // A client that was killed may have left the end of an answer behind, which is no JSON, or whole ones.
        let mut answer = None;
        for _ in 0..STRANGE {
            answer = serde_json::from_slice::<Value>(&self.line()?)
                .ok()
                .filter(|answer| answer.get("id").is_none_or(|other| *other == id));
            if answer.is_some() {
                break;
            }
        }
        let mut answer = answer.context("the model's answer is no JSON, or another request's")?;
        if let Some(members) = answer.as_object_mut() {
            members.remove("id");
        }
        if answer.get("ok") == Some(&Value::Bool(true)) {
            Ok(answer)
        } else {
            let why = answer
                .get("error")
                .and_then(Value::as_str)
                .unwrap_or("no reason given");
            bail!("the model refused {request}: {why}")
        }
    }

    fn line(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut buf = vec![0; 1 << 16];
        let mut searched = 0;
        let mut until = Instant::now() + LIMIT;
        loop {
            // Answers are megabytes that arrive in pages: look at each byte once.
            let new = self.rest.get(searched..).unwrap_or_default();
            if let Some(end) = new.iter().position(|b| *b == b'\n') {
                let mut line: Vec<u8> = self.rest.drain(..=searched + end).collect();
                line.pop();
                return Ok(line);
            }
            searched = self.rest.len();
            if self.rest.len() > LONGEST {
                bail!("the model's answer is longer than {LONGEST} bytes");
            }
            match self.fd.read(&mut buf) {
                Ok(0) => bail!("the model hung up"),
                Ok(n) => {
                    self.rest
                        .extend_from_slice(buf.get(..n).unwrap_or_default());
                    until = Instant::now() + LIMIT;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::POLLIN, until)?
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// The packets of the last `last_ms` milliseconds (all that are kept, where `None`), at most `max`, oldest first.
    ///
    /// # Errors
    /// As [`Control::request`].
    pub fn trace(&mut self, last_ms: Option<u64>, max: Option<u64>) -> anyhow::Result<Vec<Record>> {
        let mut request = serde_json::json!({ "cmd": "trace" });
        for (key, number) in [("last_ms", last_ms), ("max", max)] {
            if let Some(n) = number {
                request[key] = n.into();
            }
        }
        records(self.request(&request)?)
    }

    /// The packets of the last `last_ms` milliseconds, at most `max`, together with the queues that are connected at that
    /// moment.
    ///
    /// # Errors
    /// As [`Control::request`].
    pub fn window(&mut self, last_ms: u64, max: u64) -> anyhow::Result<Window> {
        let request = serde_json::json!({
            "cmd": "trace", "last_ms": last_ms, "max": max, "queues": true,
        });
        let mut answer = self.request(&request)?;
        let number = |key: &str| answer.get(key).and_then(Value::as_u64);
        let (start, end) = number("since_ns")
            .zip(number("t_ns"))
            .context("the model's trace does not say what it covers")?;
        let queues = answer.get_mut("queues").map(Value::take);
        Ok(Window {
            start,
            end,
            queues: queues.context("the model's trace does not say who is connected")?,
            records: records(answer)?,
        })
    }

    /// The number of the newest packet; 0 where there is none.
    ///
    /// # Errors
    /// As [`Control::request`].
    pub fn newest(&mut self) -> anyhow::Result<u64> {
        Ok(self
            .trace(None, Some(1))?
            .iter()
            .map(|r| r.seq)
            .max()
            .unwrap_or(0))
    }
}

/// The records of an answer to `trace`, in order.
fn records(answer: Value) -> anyhow::Result<Vec<Record>> {
    let Value::Object(map) = answer else {
        bail!("the model's trace is no object")
    };
    let list = map
        .into_iter()
        .map(|(_, v)| v)
        .find(Value::is_array)
        .context("the model's trace has no records")?;
    let mut records: Vec<Record> =
        serde_json::from_value(list).context("a record of the model's trace")?;
    records.sort_by_key(|r| r.seq);
    Ok(records)
}

/// PCI addresses of the device models below `devices`, the directory of PCI devices in sysfs, in order.
pub fn model_addresses(devices: &Path) -> Vec<String> {
    let is_model = |dir: &Path| {
        let id = |name: &str| {
            fs::read_to_string(dir.join(name))
                .map(|t| t.trim().to_owned())
                .unwrap_or_default()
        };
        id("vendor") == "0x1002"
            && id("subsystem_vendor") == "0x1af4"
            && id("subsystem_device") == "0x6b66"
    };
    let mut found: Vec<String> = fs::read_dir(devices)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| is_model(&e.path()))
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    found.sort();
    found
}

/// The device name of the port `rkfd.control.N`.
fn find_port(class: &Path, index: usize) -> Option<PathBuf> {
    let wanted = format!("rkfd.control.{index}");
    fs::read_dir(class).ok()?.flatten().find_map(|e| {
        let name = fs::read_to_string(e.path().join("name")).ok()?;
        (name.trim() == wanted).then(|| PathBuf::from(e.file_name()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;
    use std::io::BufReader;
    use std::os::unix::net::UnixListener;

    fn serve(
        answers: &'static [&'static str],
    ) -> (
        tempfile::TempDir,
        PathBuf,
        std::thread::JoinHandle<Vec<String>>,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        let listener = UnixListener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut seen = Vec::new();
            for answer in answers {
                let asked = lines.next().unwrap().unwrap();
                let id = serde_json::from_str::<Value>(&asked).unwrap()["id"].to_string();
                seen.push(asked);
                writeln!(&stream, "{}", answer.replace("$id", &id)).unwrap();
            }
            seen
        });
        (dir, path, thread)
    }

    #[test]
    fn trace_is_asked_for_and_read_in_order() {
        let (_dir, path, thread) = serve(&[
            r#"{"ok":true,"records":[{"seq":2,"t_ns":9,"ring":"compute","vmid":3,"pasid":32769,"doorbell":4096,"packet":"WRITE_DATA","fields":{},"text":"WRITE_DATA x","raw":[1,2]},{"seq":1,"t_ns":5,"ring":"HIQ","packet":"RUN_LIST","text":"RUN_LIST","raw":[]}]}"#,
        ]);
        let mut control = Control::open(&path).unwrap();
        let records = control.trace(Some(500), None).unwrap();
        assert_eq!(
            records
                .iter()
                .map(|r| r.packet.as_str())
                .collect::<Vec<_>>(),
            ["RUN_LIST", "WRITE_DATA"]
        );
        assert_eq!(
            (records[1].pasid, &records[1].raw[..]),
            (Some(32769), &[1, 2][..])
        );
        let mut asked: Value = serde_json::from_str(&thread.join().unwrap()[0]).unwrap();
        assert!(asked.as_object_mut().unwrap().remove("id").is_some());
        assert_eq!(asked, serde_json::json!({ "cmd": "trace", "last_ms": 500 }));
    }

    #[test]
    fn a_window_comes_with_the_queues_at_its_end() {
        let (_dir, path, thread) = serve(&[
            r#"{"ok":true,"since_ns":5,"t_ns":50,"queues":{"compute":[{"doorbell":8}],"sdma":[]},"records":[{"seq":1,"t_ns":6,"ring":"HQD","packet":"CONNECT"}]}"#,
            r#"{"ok":true,"t_ns":50,"records":[]}"#,
        ]);
        let mut control = Control::open(&path).unwrap();
        let window = control.window(45, 9).unwrap();
        assert_eq!((window.start, window.end, window.records.len()), (5, 50, 1));
        assert_eq!(window.queues["compute"][0]["doorbell"], 8);
        assert!(control.window(45, 9).is_err());
        let mut asked: Value = serde_json::from_str(&thread.join().unwrap()[0]).unwrap();
        assert!(asked.as_object_mut().unwrap().remove("id").is_some());
        let wanted = serde_json::json!({ "cmd": "trace", "last_ms": 45, "max": 9, "queues": true });
        assert_eq!(asked, wanted);
    }

    #[test]
    fn answers_to_earlier_clients_are_passed_over() {
        let (_dir, path, thread) = serve(&[
            concat!(
                "rest of an answer\"}\n",
                r#"{"ok":true,"id":"1.1","whose":"another's"}"#,
                "\n",
                r#"{"ok":true,"id":$id,"whose":"mine"}"#
            ),
            r#"{"ok":true,"id":$id,"whose":"mine again"}"#,
        ]);
        let mut control = Control::open(&path).unwrap();
        let stats = serde_json::json!({ "cmd": "stats" });
        assert_eq!(control.request(&stats).unwrap()["whose"], "mine");
        assert_eq!(control.request(&stats).unwrap()["whose"], "mine again");
        let asked = thread.join().unwrap();
        assert_ne!(asked[0], asked[1], "each request has its own id");
    }

    #[test]
    fn a_refusal_carries_its_reason() {
        let (_dir, path, thread) = serve(&[r#"{"ok":false,"error":"no such vmid"}"#]);
        let err = Control::open(&path)
            .unwrap()
            .request(&serde_json::json!({ "cmd": "vm" }))
            .unwrap_err();
        assert!(err.to_string().contains("no such vmid"), "{err}");
        thread.join().unwrap();
    }

    #[test]
    fn a_model_that_dies_is_noticed() {
        let (_dir, path, thread) = serve(&[]);
        let mut control = Control::open(&path).unwrap();
        thread.join().unwrap();
        assert!(control
            .request(&serde_json::json!({ "cmd": "stats" }))
            .is_err());
    }

    #[test]
    fn ports_are_found_by_name_and_models_by_identity() {
        let dir = tempfile::tempdir().unwrap();
        let port = |n: &str, name: &str| {
            fs::create_dir_all(dir.path().join(n)).unwrap();
            fs::write(dir.path().join(n).join("name"), format!("{name}\n")).unwrap();
        };
        port("vport1p1", "rkfd.control.1");
        port("vport1p2", "rkfd.control.0");
        assert_eq!(find_port(dir.path(), 0), Some("vport1p2".into()));
        assert_eq!(find_port(dir.path(), 2), None);
        for (address, device) in [
            ("0000:00:05.0", "0x6b66"),
            ("0000:00:04.0", "0x6b66"),
            ("0000:00:03.0", "0x0001"),
        ] {
            let d = dir.path().join("pci").join(address);
            fs::create_dir_all(&d).unwrap();
            fs::write(d.join("vendor"), "0x1002\n").unwrap();
            fs::write(d.join("subsystem_vendor"), "0x1af4\n").unwrap();
            fs::write(d.join("subsystem_device"), format!("{device}\n")).unwrap();
        }
        assert_eq!(
            model_addresses(&dir.path().join("pci")),
            ["0000:00:04.0", "0000:00:05.0"]
        );
    }
}
