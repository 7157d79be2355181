//! A bare OpenFlow 1.0 connection: flow-mods as fast as the switch takes them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

const VERSION: u8 = 1;
const HELLO: u8 = 0;
const ERROR: u8 = 1;
const ECHO_REQUEST: u8 = 2;
const FLOW_MOD: u8 = 14;
const BARRIER_REQUEST: u8 = 18;
const BARRIER_REPLY: u8 = 19;
/// Wildcards of a match: ports of the switch, Ethernet addresses, VLAN, TOS.
const WILDCARDS: u32 = 0x0030_000f;
const FLOW_MOD_LEN: usize = 80;
/// A switch that takes longer for a barrier is stuck.
const PATIENCE: Duration = Duration::from_secs(300);

pub struct OfConn(UnixStream);

impl OfConn {
    pub fn open(mgmt: &Path) -> Result<OfConn> {
        let s = UnixStream::connect(mgmt).with_context(|| mgmt.display().to_string())?;
        s.set_read_timeout(Some(PATIENCE))?;
        s.set_write_timeout(Some(PATIENCE))?;
        let mut c = OfConn(s);
        c.0.write_all(&[VERSION, HELLO, 0, 8, 0, 0, 0, 1])?;
        c.expect(HELLO)?;
        Ok(c)
    }

    /// Adds the rules `range` of the 5-tuple shape, and waits until they are in.
    pub fn add(&mut self, range: std::ops::Range<u32>) -> Result<()> {
        let mut buf = Vec::with_capacity(64 << 10);
        for i in range {
            buf.extend(flow_mod(i));
            if buf.len() >= 60 << 10 {
                self.0.write_all(&buf)?;
                buf.clear();
            }
        }
        self.0.write_all(&buf)?;
        self.barrier()
    }

    pub fn barrier(&mut self) -> Result<()> {
        self.0.write_all(&[VERSION, BARRIER_REQUEST, 0, 8, 0, 0, 0, 2])?;
        self.expect(BARRIER_REPLY)
    }

    fn expect(&mut self, kind: u8) -> Result<()> {
        loop {
            let mut h = [0; 8];
            self.0.read_exact(&mut h)?;
            let len = usize::from(u16::from_be_bytes([h[2], h[3]]));
            ensure!(len >= 8, "a message of {len} bytes");
            let mut rest = vec![0; len - 8];
            self.0.read_exact(&mut rest)?;
            match h[1] {
                k if k == kind => return Ok(()),
                ERROR => bail!("error {rest:02x?}"),
                ECHO_REQUEST => self.0.write_all(&[VERSION, 3, 0, 8, h[4], h[5], h[6], h[7]])?,
                _ => {}
            }
        }
    }
}

/// Addresses, protocol and ports; output to port 2.
fn flow_mod(i: u32) -> [u8; FLOW_MOD_LEN] {
    let mut m = [0; FLOW_MOD_LEN];
    m[..4].copy_from_slice(&[VERSION, FLOW_MOD, 0, FLOW_MOD_LEN as u8]);
    m[4..8].copy_from_slice(&i.to_be_bytes());
    m[8..12].copy_from_slice(&WILDCARDS.to_be_bytes());
    m[30..32].copy_from_slice(&0x0800u16.to_be_bytes());
    m[33] = 6;
    m[36..40].copy_from_slice(&(0x0a00_0000 + i).to_be_bytes());
    m[40..44].copy_from_slice(&(0xc612_0000 + (i & 0xffff)).to_be_bytes());
    m[44..46].copy_from_slice(&(1 + i as u16 % 0xfff0).to_be_bytes());
    m[46..48].copy_from_slice(&80u16.to_be_bytes());
    m[62..64].copy_from_slice(&100u16.to_be_bytes());
    m[64..68].copy_from_slice(&u32::MAX.to_be_bytes());
    m[68..70].copy_from_slice(&0xffffu16.to_be_bytes());
    m[72..76].copy_from_slice(&[0, 0, 0, 8]);
    m[76..78].copy_from_slice(&2u16.to_be_bytes());
    m
}
