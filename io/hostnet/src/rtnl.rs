//! Requests and their answers.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::error::Error;
use crate::ethtool::{self, Driver, Speed};
use crate::kinds::addr::{self, Addr, IFA_ADDRESS, IFA_LOCAL, RTM_NEWADDR};
use crate::kinds::link::{self, IFLA_IFNAME, Link, RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK, RTM_SETLINK, ifinfo};
use crate::netns;
use crate::socket::{RECV_LEN, Received, Socket};
use crate::wire::{
    Builder, Message, Messages, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_REQUEST,
    NLMSG_DONE, NLMSG_ERROR,
};

/// The kernel answers while the request is sent; this long without one is a fault.
const ANSWER_TIMEOUT_MS: u32 = 5000;
/// How often a dump that a change interrupted is repeated before its result is taken as it is.
const MAX_DUMP_TRIES: usize = 5;
/// Links in one namespace.
const MAX_LINKS: usize = 65_536;

/// Requests to one network namespace. Small calls that block for microseconds; made for the control
/// thread.
pub struct Rtnl {
    socket: Socket,
    /// For ethtool requests, which any socket of the namespace carries.
    ioctl: OwnedFd,
    buf: Box<[u8]>,
}

impl Rtnl {
    /// In the calling thread's namespace, for ever.
    pub fn open() -> io::Result<Rtnl> {
        let flags = SocketFlags::CLOEXEC;
        let ioctl = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        Ok(Rtnl { socket: Socket::open()?, ioctl, buf: vec![0; RECV_LEN].into() })
    }

    /// In another namespace, given by an fd of it.
    pub fn open_in(ns: BorrowedFd<'_>) -> io::Result<Rtnl> {
        netns::inside(ns, Rtnl::open)?
    }

    pub fn link_by_name(&mut self, name: &str) -> Result<Link, Error> {
        // The kernel would look a longer name up among alternative names.
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(Error::os("get link", libc::ENODEV));
        }
        self.link(0, Some(name))
    }

    pub fn link_by_index(&mut self, index: u32) -> Result<Link, Error> {
        self.link(index, None)
    }

    fn link(&mut self, index: u32, name: Option<&str>) -> Result<Link, Error> {
        let op = "get link";
        let mut found = None;
        self.ask(
            op,
            RTM_GETLINK,
            0,
            &ifinfo(index, 0, 0),
            |b| {
                if let Some(n) = name {
                    b.text(IFLA_IFNAME, n);
                }
            },
            |m| found = link::parse(m),
        )?;
        found.ok_or(Error::NoAnswer { op })
    }

    /// Every link, with statistics.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        self.dump("dump links", RTM_GETLINK, &ifinfo(0, 0, 0), MAX_LINKS, link::parse)
    }

    pub fn addrs(&mut self) -> Result<Vec<Addr>, Error> {
        self.dump("dump addresses", addr::RTM_GETADDR, &[0; 8], MAX_LINKS, addr::parse)
    }

    pub fn set_up(&mut self, index: u32, up: bool) -> Result<(), Error> {
        let iff_up = libc::IFF_UP as u32;
        self.change("set flags", RTM_SETLINK, 0, &ifinfo(index, if up { iff_up } else { 0 }, iff_up), |_| {})
    }

    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), Error> {
        self.change("set mtu", RTM_SETLINK, 0, &ifinfo(index, 0, 0), |b| {
            b.u32(link::IFLA_MTU, mtu);
        })
    }

    pub fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> Result<(), Error> {
        self.change("set mac", RTM_SETLINK, 0, &ifinfo(index, 0, 0), |b| {
            b.attr(link::IFLA_ADDRESS, &mac);
        })
    }

    /// Moves the link to the namespace that `ns` is an fd of.
    pub fn move_to(&mut self, index: u32, ns: BorrowedFd<'_>) -> Result<(), Error> {
        use std::os::fd::AsRawFd;
        self.change("move link", RTM_SETLINK, 0, &ifinfo(index, 0, 0), |b| {
            b.u32(link::IFLA_NET_NS_FD, ns.as_raw_fd() as u32);
        })
    }

    pub fn delete(&mut self, index: u32) -> Result<(), Error> {
        self.change("delete link", RTM_DELLINK, 0, &ifinfo(index, 0, 0), |_| {})
    }

    /// A pair of devices joined back to back.
    pub fn create_veth(&mut self, name: &str, peer: &str) -> Result<(), Error> {
        const VETH_INFO_PEER: u16 = 1;
        self.change("make link", RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &ifinfo(0, 0, 0), |b| {
            b.text(IFLA_IFNAME, name);
            b.nest(link::IFLA_LINKINFO, |info| {
                info.text(link::IFLA_INFO_KIND, "veth").nest(link::IFLA_INFO_DATA, |data| {
                    data.nest(VETH_INFO_PEER, |p| {
                        p.bytes(&ifinfo(0, 0, 0)).text(IFLA_IFNAME, peer);
                    });
                });
            });
        })
    }

    /// Adding an address that is there already is no error.
    pub fn add_address(&mut self, index: u32, ip: IpAddr, prefix_len: u8) -> Result<(), Error> {
        let bytes = addr::ip_bytes(ip);
        let flags = NLM_F_CREATE | crate::wire::NLM_F_REPLACE;
        self.change("add address", RTM_NEWADDR, flags, &addr::ifaddr(ip, prefix_len, index), |b| {
            b.attr(IFA_LOCAL, &bytes).attr(IFA_ADDRESS, &bytes);
        })
    }

    pub fn driver(&self, name: &str) -> io::Result<Driver> {
        ethtool::driver(self.ioctl.as_fd(), name)
    }

    pub fn speed(&self, name: &str) -> io::Result<Speed> {
        ethtool::speed(self.ioctl.as_fd(), name)
    }

    /// (transmit checksums, TCP segmentation) as the device has them switched on.
    pub fn tx_offloads(&self, name: &str) -> io::Result<(bool, bool)> {
        ethtool::tx_offloads(self.ioctl.as_fd(), name)
    }

    fn change(
        &mut self,
        op: &'static str,
        kind: u16,
        flags: u16,
        fixed: &[u8],
        fill: impl FnOnce(&mut Builder),
    ) -> Result<(), Error> {
        self.ask(op, kind, flags, fixed, fill, |_| {})
    }

    /// Sends a request that is acknowledged; `each` sees what comes before the acknowledgement.
    fn ask(
        &mut self,
        op: &'static str,
        kind: u16,
        flags: u16,
        fixed: &[u8],
        fill: impl FnOnce(&mut Builder),
        each: impl FnMut(&Message<'_>),
    ) -> Result<(), Error> {
        let seq = self.socket.next_seq();
        let mut b = Builder::new(kind, flags | NLM_F_REQUEST | NLM_F_ACK, seq, fixed);
        fill(&mut b);
        self.socket.send(b.finish()).map_err(Error::io(op))?;
        self.answers(op, seq, each).map(|_| ())
    }

    fn dump<T>(
        &mut self,
        op: &'static str,
        kind: u16,
        fixed: &[u8],
        limit: usize,
        parse: impl Fn(&Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        for attempt in 1.. {
            let seq = self.socket.next_seq();
            let mut b = Builder::new(kind, NLM_F_REQUEST | NLM_F_DUMP, seq, fixed);
            self.socket.send(b.finish()).map_err(Error::io(op))?;
            let mut all = Vec::new();
            let torn = self.answers(op, seq, |m| {
                if all.len() < limit {
                    all.extend(parse(m));
                }
            })?;
            if !torn || attempt == MAX_DUMP_TRIES {
                return Ok(all);
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Reads until the acknowledgement or the end of the dump. Returns whether a change in between
    /// tore the dump.
    fn answers(&mut self, op: &'static str, seq: u32, mut each: impl FnMut(&Message<'_>)) -> Result<bool, Error> {
        let mut torn = false;
        loop {
            match self.socket.recv(&mut self.buf).map_err(Error::io(op))? {
                Received::Foreign => continue,
                Received::Lost => return Err(Error::os(op, libc::ENOBUFS)),
                Received::Empty => {
                    if !self.socket.wait(ANSWER_TIMEOUT_MS).map_err(Error::io(op))? {
                        return Err(Error::NoAnswer { op });
                    }
                }
                Received::Datagram(n) => {
                    for m in Messages(&self.buf[..n]) {
                        if m.seq != seq {
                            continue;
                        }
                        torn |= m.flags & NLM_F_DUMP_INTR != 0;
                        match m.kind {
                            NLMSG_ERROR | NLMSG_DONE => {
                                return match m.errno() {
                                    Some(0) => Ok(torn),
                                    None if m.kind == NLMSG_DONE => Ok(torn),
                                    Some(e) if e > 0 => Err(Error::os(op, e)),
                                    _ => Err(Error::Malformed { op }),
                                };
                            }
                            _ => each(&m),
                        }
                    }
                }
            }
        }
    }
}
