//! One connection to a daemon's control socket: commands without starting a program for each.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// Longest time for one command.
const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Ctl {
    stream: UnixStream,
    buffer: Vec<u8>,
    id: u64,
}

impl Ctl {
    pub fn connect(path: &Path) -> Ctl {
        let stream = UnixStream::connect(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        stream.set_read_timeout(Some(TIMEOUT)).expect("read timeout");
        Ctl { stream, buffer: Vec::new(), id: 0 }
    }

    /// The reply, or the error's text.
    pub fn call(&mut self, method: &str, params: &[&str]) -> Result<String, String> {
        self.id += 1;
        let request = json!({ "id": self.id, "method": method, "params": params });
        if let Err(e) = self.stream.write_all(request.to_string().as_bytes()) {
            return Err(format!("<control socket: {e}>"));
        }
        let mut chunk = [0u8; 65536];
        loop {
            let mut values = serde_json::Deserializer::from_slice(&self.buffer).into_iter::<Value>();
            if let Some(Ok(v)) = values.next() {
                let used = values.byte_offset();
                self.buffer.drain(..used);
                return reply(&v);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err("<control socket closed>".into()),
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(e) => return Err(format!("<control socket: {e}>")),
            }
        }
    }
}

fn reply(v: &Value) -> Result<String, String> {
    match (&v["result"], &v["error"]) {
        (Value::String(s), _) => Ok(s.clone()),
        (_, Value::String(e)) => Err(e.clone()),
        _ => Err(v.to_string()),
    }
}
