//! Giving up root, but not what packet sockets, taps and pinned threads need.

use std::path::Path;

use super::{Error, text};
use crate::sys;

/// Capabilities that are kept (linux/capability.h).
const CAP_NET_BIND_SERVICE: u32 = 10;
const CAP_NET_BROADCAST: u32 = 11;
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_RAWIO: u32 = 17;
const CAP_SYS_NICE: u32 = 23;

/// Becomes `USER[:GROUP]` or `:GROUP`; the user's own group if none is given. `rawio` keeps the
/// right to program hardware. Call it before threads and descriptors that must belong to the
/// user.
pub fn become_user(spec: &str, rawio: bool) -> Result<(), Error> {
    let err = |what: &'static str| move |e: std::io::Error| Error::System(what, text(e));
    let (uid, gid) = ids(spec)?;
    let user = spec.split(':').next().unwrap_or_default();
    if uid == rustix::process::getuid().as_raw() && gid == rustix::process::getgid().as_raw() {
        return Ok(());
    }
    if !rustix::process::getuid().is_root() {
        return Err(Error::User(format!("cannot become {spec}: not started by root")));
    }
    sys::keep_capabilities(true).map_err(err("prctl(PR_SET_KEEPCAPS)"))?;
    sys::set_ids(user, uid, gid).map_err(err("setresuid"))?;
    let mut caps =
        vec![CAP_NET_BIND_SERVICE, CAP_NET_BROADCAST, CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK, CAP_SYS_NICE];
    if rawio {
        caps.push(CAP_SYS_RAWIO);
    }
    if uid != 0 {
        sys::set_capabilities(&caps).map_err(err("capset"))?;
    }
    sys::keep_capabilities(false).map_err(err("prctl(PR_SET_KEEPCAPS)"))
}

/// Gives a file that was made before to the user, who will have to open it again.
pub fn give_file(path: &Path, spec: &str) -> Result<(), Error> {
    let (uid, gid) = ids(spec)?;
    std::os::unix::fs::chown(path, Some(uid), Some(gid)).map_err(|e| Error::System("chown", text(e)))
}

/// (uid, gid) of `USER[:GROUP]`.
fn ids(spec: &str) -> Result<(u32, u32), Error> {
    let (user, group) = match spec.split_once(':') {
        Some((u, g)) => (u, Some(g)),
        None => (spec, None),
    };
    let unknown = |kind: &str, name: &str, e: std::io::Error| Error::User(format!("{kind} {name}: {}", text(e)));
    let (uid, own_gid) = match user {
        "" => (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()),
        u => sys::user(u).map_err(|e| unknown("user", u, e))?,
    };
    let gid = match group {
        None | Some("") => own_gid,
        Some(g) => sys::group(g).map_err(|e| unknown("group", g, e))?,
    };
    Ok((uid, gid))
}
