//! The pidfile: the pid in text, write-locked by that process for as long as it lives, which is
//! what the control tools check.
//!
//! A lock of this kind is gone as soon as the process closes any descriptor of the file, so
//! nothing else here ever opens our own pidfile.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{Error, display, text};
use crate::sys;

pub struct Pidfile {
    path: PathBuf,
    /// (device, inode): a successor's file is not removed.
    id: (u64, u64),
    _locked: File,
}

/// Fails if a process that runs has locked `path`.
pub fn check(path: &Path) -> Result<(), Error> {
    match File::options().read(true).write(true).open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::Pidfile(display(path), "open", text(e))),
        Ok(f) => match sys::lock_holder(&f) {
            Ok(None) => Ok(()),
            Ok(Some(pid)) => Err(Error::AlreadyRunning(display(path), pid)),
            Err(e) => Err(Error::Pidfile(display(path), "fcntl(F_GETLK)", text(e))),
        },
    }
}

impl Pidfile {
    /// Writes, locks and puts it in place at once, so that no reader sees it half done.
    pub fn create(path: &Path, overwrite: bool) -> Result<Pidfile, Error> {
        let err = |what| move |e: std::io::Error| Error::Pidfile(display(path), what, text(e));
        let pid = std::process::id();
        let mut tmp = path.as_os_str().to_owned();
        tmp.push(format!(".tmp{pid}"));
        let tmp = PathBuf::from(tmp);
        let _ = fs::remove_file(&tmp);
        let mut file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o644).open(&tmp).map_err(err("create"))?;
        let made = (|| {
            sys::lock_for_writing(&file).map_err(err("fcntl(F_SETLK)"))?;
            file.write_all(format!("{pid}\n").as_bytes()).map_err(err("write"))?;
            place(&tmp, path, overwrite)
        })();
        if let Err(e) = made {
            let _ = fs::remove_file(&tmp);
            return Err(e);
        }
        let m = file.metadata().map_err(err("stat"))?;
        Ok(Pidfile { path: path.into(), id: (m.dev(), m.ino()), _locked: file })
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Moves `tmp` to `path`. Two processes that start at once cannot both win: `link` fails if
/// there is a file, and one that is there is only replaced if nobody holds its lock.
fn place(tmp: &Path, path: &Path, overwrite: bool) -> Result<(), Error> {
    if !overwrite {
        match fs::hard_link(tmp, path) {
            Ok(()) => {
                let _ = fs::remove_file(tmp);
                return Ok(());
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => check(path)?,
            // A file system without links.
            Err(_) => check(path)?,
        }
    }
    fs::rename(tmp, path).map_err(|e| Error::Pidfile(display(path), "rename", text(e)))
}
