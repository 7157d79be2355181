//! Running the reference's programs, and talking JSON over a unix socket.
#![allow(dead_code)]

use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(20);

/// Polls until `f` gives something; panics when patience ends.
pub fn wait_for<T>(what: &str, mut f: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(v) = f() {
            return v;
        }
        assert!(Instant::now() < end, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn tool(name: &str, args: &[&str]) -> Output {
    Command::new(name).args(args).output().unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Runs a program that must succeed; its standard output.
pub fn tool_ok(name: &str, args: &[&str]) -> String {
    let o = tool(name, args);
    assert!(o.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8_lossy(&o.stdout).into_owned()
}

/// Debian's server on a database file, in the foreground of a child process.
pub struct ReferenceServer {
    child: Child,
    pub socket: PathBuf,
}

impl ReferenceServer {
    pub fn start(dir: &Path, db: &Path) -> ReferenceServer {
        let socket = dir.join("db.sock");
        let _ = std::fs::remove_file(&socket);
        let child = Command::new("ovsdb-server")
            .arg(format!("--remote=punix:{}", socket.display()))
            .arg(format!("--unixctl={}", dir.join("ctl").display()))
            .arg(db)
            .env("OVS_RUNDIR", dir)
            .env("OVS_LOGDIR", dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ovsdb-server starts");
        wait_for("the server's socket", || UnixStream::connect(&socket).ok());
        ReferenceServer { child, socket }
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ReferenceServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A JSON-RPC connection: whole values in and out.
pub struct Conn {
    stream: UnixStream,
    buffer: Vec<u8>,
    pub closed: bool,
}

impl Conn {
    pub fn open(path: &Path) -> Conn {
        let stream = wait_for("a connection", || UnixStream::connect(path).ok());
        stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        Conn { stream, buffer: Vec::new(), closed: false }
    }

    pub fn send(&mut self, v: &Value) {
        let _ = self.stream.write_all(v.to_string().as_bytes());
    }

    /// What has arrived; waits some milliseconds if nothing has.
    pub fn receive(&mut self) -> Vec<Value> {
        let mut chunk = [0; 65536];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.closed = true,
            Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => self.closed = true,
        }
        let mut stream = serde_json::Deserializer::from_slice(&self.buffer).into_iter::<Value>();
        let mut out = Vec::new();
        let mut used = 0;
        while let Some(Ok(v)) = stream.next() {
            out.push(v);
            used = stream.byte_offset();
        }
        self.buffer.drain(..used);
        out
    }
}
