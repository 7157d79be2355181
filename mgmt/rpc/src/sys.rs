//! System calls that rustix does not have.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Deletes by number: the descriptor may be closed, then the kernel says so and that is fine.
pub fn epoll_delete(ep: &OwnedFd, raw: RawFd) {
    // SAFETY: epoll_ctl(DEL) touches no memory of ours; a number that is closed or not in the set
    // gives EBADF or ENOENT.
    unsafe {
        libc::epoll_ctl(ep.as_raw_fd(), libc::EPOLL_CTL_DEL, raw, std::ptr::null_mut());
    }
}

/// Gives whole pages that the allocator keeps between what is in use back to the system.
pub fn trim_heap() {
    // SAFETY: malloc_trim takes the allocator's own locks and moves nothing that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Longest formatted date.
const DATE_MAX: usize = 256;

/// `strftime(3)` of a time since the epoch. Empty if it does not fit.
pub fn strftime(format: &str, secs: i64, local: bool) -> String {
    let Ok(format) = CString::new(format) else { return String::new() };
    let mut buf = [0u8; DATE_MAX];
    // SAFETY: `tm` is filled by the reentrant conversions (all-zero is a valid value if they
    // fail); strftime writes at most `buf.len()` bytes and reads the NUL-terminated format.
    let n = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if local {
            libc::localtime_r(&secs, &mut tm);
        } else {
            libc::gmtime_r(&secs, &mut tm);
        }
        libc::strftime(buf.as_mut_ptr().cast(), buf.len(), format.as_ptr(), &tm)
    };
    String::from_utf8_lossy(&buf[..n]).into_owned()
}

pub enum Fork {
    Child,
    Parent(i32),
}

/// How a child ended.
pub struct Status {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub core: bool,
}

/// Only for a process with one thread: the child then may do anything.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: no other thread exists (the caller's duty), so no lock is held in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

pub fn wait(pid: i32) -> io::Result<Status> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a valid place for the result.
        if unsafe { libc::waitpid(pid, &mut status, 0) } == pid {
            let exited = libc::WIFEXITED(status);
            let signaled = libc::WIFSIGNALED(status);
            return Ok(Status {
                code: exited.then(|| libc::WEXITSTATUS(status)),
                signal: signaled.then(|| libc::WTERMSIG(status)),
                core: signaled && libc::WCOREDUMP(status),
            });
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// The system's words for a signal.
pub fn signal_name(signal: i32) -> String {
    // SAFETY: strsignal returns null or a NUL-terminated string that stays valid until the next
    // call; this process has one thread where it is used, and the text is copied at once.
    unsafe {
        let p = libc::strsignal(signal);
        if p.is_null() { signal.to_string() } else { CStr::from_ptr(p).to_string_lossy().into_owned() }
    }
}

fn whole_file(kind: i32) -> libc::flock {
    // SAFETY: a flock of zeros is a valid value.
    let mut l: libc::flock = unsafe { std::mem::zeroed() };
    l.l_type = kind as libc::c_short;
    l.l_whence = libc::SEEK_SET as libc::c_short;
    l
}

/// Pid of the process whose lock is in the way of ours.
pub fn lock_holder(f: &File) -> io::Result<Option<i32>> {
    let mut l = whole_file(libc::F_WRLCK);
    // SAFETY: the kernel reads and writes `l`, which lives across the call.
    if unsafe { libc::fcntl(f.as_raw_fd(), libc::F_GETLK, &mut l) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((i32::from(l.l_type) != libc::F_UNLCK).then_some(l.l_pid))
}

pub fn lock_for_writing(f: &File) -> io::Result<()> {
    let l = whole_file(libc::F_WRLCK);
    // SAFETY: the kernel only reads `l`.
    check(unsafe { libc::fcntl(f.as_raw_fd(), libc::F_SETLK, &l) })
}

/// Gives a signal its default effect, whoever handled it before.
pub fn default_signal(signal: i32) {
    // SAFETY: no handler of ours is involved; the default action needs no code of this process.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
    }
}

/// Blocks `signals` for this thread and those it starts, and makes them readable.
pub fn signal_fd(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before it is used; signalfd returns a new
    // descriptor that is ours alone.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &s in signals {
            libc::sigaddset(&mut set, s);
        }
        let e = libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        if e != 0 {
            return Err(io::Error::from_raw_os_error(e));
        }
        let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        check(fd)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// The next pending signal of a `signal_fd`.
pub fn read_signal(fd: &OwnedFd) -> Option<i32> {
    const SIZE: usize = std::mem::size_of::<libc::signalfd_siginfo>();
    let mut b = [0u8; SIZE];
    let n = rustix::io::read(fd, &mut b).ok()?;
    // `ssi_signo` comes first.
    (n == SIZE).then(|| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

/// Size of the buffer for one entry of the user or group database.
const ENTRY_MAX: usize = 64 * 1024;

/// (uid, gid) of a user by name.
pub fn user(name: &str) -> io::Result<(u32, u32)> {
    let name = CString::new(name)?;
    let mut buf = vec![0; ENTRY_MAX];
    // SAFETY: all pointers are to live memory of the sizes given; the result is only read when
    // it points to `pw`.
    unsafe {
        let mut pw: libc::passwd = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        let e = libc::getpwnam_r(name.as_ptr(), &mut pw, buf.as_mut_ptr(), buf.len(), &mut found);
        entry(e, found.is_null())?;
        Ok((pw.pw_uid, pw.pw_gid))
    }
}

/// gid of a group by name.
pub fn group(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    let mut buf = vec![0; ENTRY_MAX];
    // SAFETY: as for `user`.
    unsafe {
        let mut gr: libc::group = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        let e = libc::getgrnam_r(name.as_ptr(), &mut gr, buf.as_mut_ptr(), buf.len(), &mut found);
        entry(e, found.is_null())?;
        Ok(gr.gr_gid)
    }
}

fn entry(e: i32, missing: bool) -> io::Result<()> {
    match (e, missing) {
        (0, false) => Ok(()),
        (0, true) => Err(io::Error::new(io::ErrorKind::NotFound, "no such entry")),
        (e, _) => Err(io::Error::from_raw_os_error(e)),
    }
}

pub fn keep_capabilities(on: bool) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, libc::c_ulong::from(on), 0, 0, 0) })
}

/// Supplementary groups of `user` (none without one), then group, then user; for good.
pub fn set_ids(user: &str, uid: u32, gid: u32) -> io::Result<()> {
    let name = CString::new(user)?;
    // SAFETY: `name` lives across the call, the others take plain numbers.
    unsafe {
        if user.is_empty() {
            check(libc::setgroups(0, std::ptr::null()))?;
        } else {
            check(libc::initgroups(name.as_ptr(), gid))?;
        }
        check(libc::setresgid(gid, gid, gid))?;
        check(libc::setresuid(uid, uid, uid))
    }
}

/// Makes `caps` the effective and permitted set.
pub fn set_capabilities(caps: &[u32]) -> io::Result<()> {
    /// `_LINUX_CAPABILITY_VERSION_3`: two words of each set.
    const VERSION: u32 = 0x2008_0522;
    let header = [VERSION, 0];
    let mut data = [0u32; 6];
    for &c in caps {
        let word = 3 * (c as usize / 32);
        data[word] |= 1 << (c % 32); // effective
        data[word + 1] |= 1 << (c % 32); // permitted
    }
    // SAFETY: header and data have the layout of version 3 and live across the call.
    let r = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    check(r as i32)
}

/// The command line as `ps` shows it, to be put back by `set_command_line`.
pub fn command_line() -> Vec<u8> {
    std::fs::read("/proc/self/cmdline").unwrap_or_default()
}

/// What `ps` shows for this process from now on, cut to the length of its first command line.
/// Only for a process with one thread.
pub fn set_command_line(text: &[u8]) {
    let Some((start, end)) = argument_area() else { return };
    let room = end - start - 1;
    let n = text.len().min(room);
    // SAFETY: the kernel says that [start, end) holds the arguments, writable memory of this
    // process's stack for its whole life; std copied what it needs of them, and the only thread
    // that exists here is this one.
    unsafe {
        let area = std::slice::from_raw_parts_mut(start as *mut u8, end - start);
        area.fill(0);
        area[..n].copy_from_slice(&text[..n]);
    }
}

/// Where the kernel put the command line: fields 48 and 49 of `stat`.
fn argument_area() -> Option<(usize, usize)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(45);
    let (start, end) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (start != 0 && start < end).then_some((start, end))
}

/// Makes input, output and error the file `f`.
pub fn replace_standard_streams(f: &File) {
    for n in 0..3 {
        // SAFETY: plain numbers; the old descriptors are closed by the kernel in the same step, and
        // std's handles of them go by number.
        unsafe {
            libc::dup2(f.as_raw_fd(), n);
        }
    }
}

fn check(r: i32) -> io::Result<()> {
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
