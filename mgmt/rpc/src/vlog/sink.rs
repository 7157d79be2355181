//! Where finished lines go. Nothing here waits: a socket that is full loses the line.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// An open log file.
pub struct LogFile {
    pub path: PathBuf,
    file: File,
}

impl LogFile {
    pub fn open(path: &Path) -> std::io::Result<LogFile> {
        let file = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
        Ok(LogFile { path: path.into(), file })
    }

    pub fn write(&mut self, line: &str) {
        // A full disk must not stop the switch, and there is nobody to tell.
        let _ = self.file.write_all(line.as_bytes());
    }
}

/// Ways to a system logger.
pub enum Syslog {
    Null,
    /// Connected when first used, and again after the logger was restarted.
    Unix {
        path: PathBuf,
        socket: Option<UnixDatagram>,
    },
    Udp(UdpSocket),
}

impl Syslog {
    pub fn open(method: &str) -> Result<Syslog, String> {
        match method.split_once(':') {
            None if method == "null" => Ok(Syslog::Null),
            None if method == "libc" => Ok(Syslog::Unix { path: "/dev/log".into(), socket: None }),
            Some(("unix", path)) => Ok(Syslog::Unix { path: path.into(), socket: None }),
            Some(("udp", target)) => {
                let to: std::net::SocketAddr = target.parse().map_err(|_| format!("{target}: bad syslog target"))?;
                let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(any).and_then(|s| {
                    s.set_nonblocking(true)?;
                    s.connect(to)?;
                    Ok(s)
                });
                socket.map(Syslog::Udp).map_err(|e| format!("{target}: {e}"))
            }
            _ => Err(format!("unsupported syslog method '{method}'")),
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Syslog::Null)
    }

    pub fn write(&mut self, line: &str) {
        match self {
            Syslog::Null => {}
            Syslog::Udp(s) => {
                let _ = s.send(line.as_bytes());
            }
            Syslog::Unix { path, socket } => {
                if socket.as_ref().is_none_or(|s| s.send(line.as_bytes()).is_err()) {
                    *socket = connect(path);
                    let _ = socket.as_ref().map(|s| s.send(line.as_bytes()));
                }
            }
        }
    }
}

fn connect(path: &Path) -> Option<UnixDatagram> {
    let s = UnixDatagram::unbound().ok()?;
    s.set_nonblocking(true).ok()?;
    s.connect(path).ok()?;
    Some(s)
}
