//! SIGBUS: a virtual machine's file may become shorter under our mapping of it. Such a fault is mended and costs
//! that machine its port; any other ends the process as it would have.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;

/// To be called before there are threads.
pub fn install() -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid sigaction.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = on_fault as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART;
    // SAFETY: the action is initialised, and its handler does only what a handler may.
    let r = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes the fault's information, and for SIGBUS an address is part of it.
    let address = unsafe { (*info).si_addr() } as usize;
    if !fv_switch::repair_fault(address) {
        // SAFETY: back to the default; the instruction faults again and ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
