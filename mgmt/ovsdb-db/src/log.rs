//! The standalone database file: a record with the schema, then one for each transaction.
//!
//! Each record is `OVSDB JSON <length> <SHA-1 of the data>\n` and as many bytes of data, which end
//! in a newline. `ovsdb-tool` and `ovsdb-server` read and write the same.

use crate::server::Journal;
use fv_ovsdb::{Commit, Database, Schema, Uuid, logrec};
use rustix::fs::FlockOperation;
use serde_json::Value;
use sha1::{Digest, Sha1};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Smaller files are not worth compacting.
pub const COMPACT_MIN_BYTES: u64 = 10 << 20;
const MAGIC: &str = "OVSDB JSON ";
/// Longest header line: magic, 20 digits, a SHA-1, spaces, newline.
const MAX_HEADER: usize = 11 + 20 + 1 + 40 + 1;

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    #[error("{0}: cannot lock lockfile: Resource temporarily unavailable")]
    Locked(PathBuf),
    #[error("{0}: {1}")]
    Format(PathBuf, String),
}

impl LogError {
    /// Another process has the file.
    pub fn is_locked(&self) -> bool {
        matches!(self, LogError::Locked(_))
    }
}

/// An open database file: ours alone while this lives.
pub struct LogFile {
    path: PathBuf,
    file: File,
    /// Where the next record goes. Beyond it is only what a failed write left.
    end: u64,
    /// Size after the last compaction.
    compacted: u64,
    /// What a failed write left could not be cut off.
    dirty: bool,
    _lock: Lock,
}

/// The lock on a database file, held while this lives.
struct Lock {
    path: PathBuf,
    file: Option<File>,
}

/// Locks of this process. The system's belong to a process as a whole, and any close of the lock
/// file gives them up: so nobody here may open it twice.
static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn held() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut held = held();
        // Closed before anybody here may open it again.
        drop(self.file.take());
        held.remove(&self.path);
    }
}

impl LogFile {
    /// Opens and reads a file, makes it if it is missing, and brings its rows to `schema`.
    pub fn open(path: &Path, schema: &Arc<Schema>, wall_ms: u64) -> Result<(LogFile, Database), LogError> {
        // The name of the lock is that of the real file, or two names would be two locks.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let lock = lock(&path)?;
        // What a compaction that was killed left behind.
        let _ = std::fs::remove_file(with_suffix(&path, ".tmp"));
        let io = |e| LogError::Io(path.clone(), e);
        let mut file = match open_file(&path, false) {
            Ok(f) => f,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                create(&path, schema).map_err(io)?;
                ::log::info!(target: "ovsdb_log", "{}: created", path.display());
                open_file(&path, false).map_err(io)?
            }
            Err(e) => return Err(io(e)),
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let contents = read(&path, &bytes)?;
        if contents.schema.name != schema.name {
            let what = format!("holds database {}, not {}", contents.schema.name, schema.name);
            return Err(LogError::Format(path, what));
        }
        if contents.end < bytes.len() {
            cut_tail(&path, &file, &bytes, &contents)?;
        }
        let end = contents.end as u64;
        let mut log = LogFile { path, file, end, compacted: end.min(COMPACT_MIN_BYTES), dirty: false, _lock: lock };
        let mut db = contents.db;
        if contents.schema != **schema {
            let (from, to) = (&contents.schema.version, &schema.version);
            let (converted, lost) = logrec::convert(&db, schema.clone(), &mut Uuid::new_v4)
                .map_err(|e| LogError::Format(log.path.clone(), format!("cannot convert to schema {to}: {e}")))?;
            ::log::info!(target: "ovsdb_log", "{}: converted from schema version {from} to {to}", log.path.display());
            for l in lost {
                ::log::warn!(target: "ovsdb_log", "{}: not kept: {l}", log.path.display());
            }
            db = converted;
            log.compact(&db, wall_ms).map_err(|e| LogError::Io(log.path.clone(), e))?;
        }
        Ok((log, db))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of whole records.
    pub fn size(&self) -> u64 {
        self.end
    }

    /// Appends a record. After an error the file is as before.
    pub fn append_record(&mut self, record: &Value, durable: bool) -> io::Result<()> {
        if self.dirty {
            self.file.set_len(self.end)?;
            self.dirty = false;
        }
        let text = encode(record);
        let written = self.file.write_all_at(text.as_bytes(), self.end);
        let synced = written.and_then(|()| if durable { self.file.sync_data() } else { Ok(()) });
        if let Err(e) = synced {
            self.dirty = self.file.set_len(self.end).is_err();
            return Err(e);
        }
        self.end += text.len() as u64;
        Ok(())
    }

    /// True once the file is large and has doubled since the last compaction.
    pub fn should_compact(&self) -> bool {
        self.end > COMPACT_MIN_BYTES && self.end / 2 > self.compacted
    }

    /// Replaces the file, in one step, by one with the rows of `db` alone.
    pub fn compact(&mut self, db: &Database, wall_ms: u64) -> io::Result<()> {
        let tmp = with_suffix(&self.path, ".tmp");
        let _ = std::fs::remove_file(&tmp);
        let result = self.write_compacted(&tmp, db, wall_ms);
        if result.is_err() {
            let _ = std::fs::remove_file(&tmp);
        }
        result
    }

    fn write_compacted(&mut self, tmp: &Path, db: &Database, wall_ms: u64) -> io::Result<()> {
        let mut file = open_file(tmp, true)?;
        if let Ok(m) = self.file.metadata() {
            let _ = file.set_permissions(m.permissions());
        }
        let mut text = encode(&db.schema().to_json());
        if let Some(r) = logrec::snapshot_record(db, wall_ms, "compacting database online") {
            text.push_str(&encode(&r));
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(tmp, &self.path)?;
        sync_directory(&self.path);
        self.file = file;
        self.end = text.len() as u64;
        self.compacted = self.end;
        self.dirty = false;
        Ok(())
    }
}

impl Journal for LogFile {
    fn append(&mut self, db: &Database, commit: &Commit, wall_ms: u64) -> Result<(), String> {
        match logrec::to_record(db.schema(), commit, wall_ms) {
            Some(r) => self.append_record(&r, commit.durable).map_err(|e| format!("{}: {e}", self.path.display())),
            None => Ok(()),
        }
    }

    fn compact(&mut self, db: &Database, wall_ms: u64) -> Result<(), String> {
        LogFile::compact(self, db, wall_ms).map_err(|e| format!("{}: {e}", self.path.display()))
    }

    fn applied(&mut self, db: &Database, wall_ms: u64) {
        if !self.should_compact() {
            return;
        }
        let before = self.end;
        match LogFile::compact(self, db, wall_ms) {
            Ok(()) => {
                ::log::info!(target: "ovsdb_log", "{}: compacted from {before} to {} bytes", self.path.display(), self.end)
            }
            Err(e) => {
                // Not before it has doubled again: a full disk is not asked at every commit.
                self.compacted = before;
                ::log::warn!(target: "ovsdb_log", "{}: compaction failed: {e}", self.path.display());
            }
        }
    }
}

fn open_file(path: &Path, new: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(new).mode(0o640).open(path)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut s = path.as_os_str().to_owned();
    s.push(suffix);
    s.into()
}

/// The lock file of a database file: `.NAME.~lock~` beside it.
pub fn lock_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.~lock~"))
}

fn lock(path: &Path) -> Result<Lock, LogError> {
    let lock = lock_path(path);
    let mut held = held();
    if held.contains(&lock) {
        return Err(LogError::Locked(path.to_owned()));
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&lock)
        .map_err(|e| LogError::Io(lock.clone(), e))?;
    match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            held.insert(lock.clone());
            Ok(Lock { path: lock, file: Some(file) })
        }
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Err(LogError::Locked(path.to_owned())),
        Err(e) => Err(LogError::Io(lock, e.into())),
    }
}

/// True if somebody, this process included, holds the lock of this database file.
pub fn is_locked(path: &Path) -> bool {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if !lock_path(&path).exists() {
        return false;
    }
    matches!(lock(&path), Err(LogError::Locked(_)))
}

/// Makes a file with the schema alone. It appears whole or not at all.
fn create(path: &Path, schema: &Schema) -> io::Result<()> {
    let tmp = with_suffix(path, ".tmp");
    let _ = std::fs::remove_file(&tmp);
    let mut file = open_file(&tmp, true)?;
    file.write_all(encode(&schema.to_json()).as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&tmp, path)?;
    sync_directory(path);
    Ok(())
}

/// Makes a rename last. A file system that cannot do this has its own order.
fn sync_directory(path: &Path) {
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(d) = File::open(dir) {
        let _ = d.sync_all();
    }
}

/// A record's bytes.
pub fn encode(json: &Value) -> String {
    let mut data = json.to_string();
    data.push('\n');
    let mut text = format!("{MAGIC}{} ", data.len());
    for b in Sha1::digest(data.as_bytes()) {
        let _ = write!(text, "{b:02x}");
    }
    text.push('\n');
    text.push_str(&data);
    text
}

struct Contents {
    schema: Schema,
    db: Database,
    /// End of the last whole record.
    end: usize,
    /// Why reading ended there.
    fault: Option<String>,
}

fn read(path: &Path, bytes: &[u8]) -> Result<Contents, LogError> {
    let format = |what: String| LogError::Format(path.to_owned(), what);
    if bytes.starts_with(b"OVSDB CLUSTER") {
        return Err(format("clustered databases are not supported".into()));
    }
    let (json, mut end) = match decode(bytes, 0) {
        Ok(Some(r)) => r,
        Ok(None) => return Err(format("file is empty".into())),
        Err(e) => return Err(format(format!("not a database file: {e}"))),
    };
    let schema = Schema::from_json(&json).map_err(|e| format(format!("bad schema: {e}")))?;
    let mut db = Database::new(Arc::new(schema.clone()));
    let fault = loop {
        match decode(bytes, end) {
            Ok(None) => break None,
            Ok(Some((json, next))) => {
                // Whole, yet not understood: nothing of it may be thrown away.
                logrec::replay(&mut db, &json, &mut Uuid::new_v4)
                    .map_err(|e| format(format!("bad transaction at offset {end}: {e}")))?;
                end = next;
            }
            Err(e) => break Some(e),
        }
    };
    Ok(Contents { schema, db, end, fault })
}

/// The record at `offset` and where the next one starts; None at the end.
fn decode(bytes: &[u8], offset: usize) -> Result<Option<(Value, usize)>, String> {
    let rest = bytes.get(offset..).unwrap_or_default();
    if rest.is_empty() {
        return Ok(None);
    }
    let newline = rest.iter().take(MAX_HEADER).position(|b| *b == b'\n').ok_or("bad header line")?;
    let header = std::str::from_utf8(&rest[..newline]).map_err(|_| "bad header line")?;
    let mut words = header.strip_prefix(MAGIC).ok_or("bad header line")?.split(' ');
    let (Some(length), Some(hash), None) = (words.next(), words.next(), words.next()) else {
        return Err("bad header line".into());
    };
    let length: usize = length.parse().map_err(|_| "bad length in header line")?;
    let start = newline + 1;
    let data = start.checked_add(length).and_then(|e| rest.get(start..e)).ok_or("record is cut short")?;
    let mut actual = String::new();
    for b in Sha1::digest(data) {
        let _ = write!(actual, "{b:02x}");
    }
    if actual != hash {
        return Err(format!("data has SHA-1 hash {actual} but should have hash {hash}"));
    }
    let json = serde_json::from_slice(data).map_err(|e| format!("data is not JSON: {e}"))?;
    Ok(Some((json, offset + start + length)))
}

/// Cuts off what is not a whole record. When whole records follow it, this is no torn write but
/// damage: the bytes are kept in a file of their own.
fn cut_tail(path: &Path, file: &File, bytes: &[u8], c: &Contents) -> Result<(), LogError> {
    let io = |e| LogError::Io(path.to_owned(), e);
    let tail = &bytes[c.end..];
    let why = c.fault.as_deref().unwrap_or("unknown");
    let name = path.display();
    ::log::warn!(target: "ovsdb_log", "{name}: {} bytes at offset {} are not a whole transaction ({why}); truncating", tail.len(), c.end);
    let needle = MAGIC.as_bytes();
    if tail.len() > needle.len() && tail[1..].windows(needle.len()).any(|w| w == needle) {
        let kept = with_suffix(path, ".damaged");
        std::fs::write(&kept, tail).map_err(io)?;
        ::log::warn!(target: "ovsdb_log", "{name}: transactions follow the damage; what was cut off is kept in {}", kept.display());
    }
    file.set_len(c.end as u64).map_err(io)
}
