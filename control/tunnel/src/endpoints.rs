//! Which tunnel port a packet belongs to.

use std::net::{IpAddr, Ipv6Addr};

use fv_core::OfPort;
use fv_flow::DpKey;
use hashbrown::HashMap;

use crate::address;
use crate::config::{Address, Config, Inner, Key};

/// A bridge by number.
pub type Bridge = u32;

/// What a packet of the port looks like. Addresses are IPv6, mapped where they are not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Shape {
    dp_port: u32,
    /// None where flows match it.
    in_key: Option<u64>,
    local: Local,
    /// None where flows match it.
    remote: Option<Ipv6Addr>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Local {
    Any,
    Flow,
    Fixed(Ipv6Addr),
}

/// The tunnel ports of a datapath.
#[derive(Default)]
pub struct Endpoints(HashMap<Shape, Owner>);

/// Whose the packets are, and what they must be.
#[derive(Clone, Copy)]
struct Owner {
    port: (Bridge, OfPort),
    inner: Inner,
}

impl Endpoints {
    /// Adds a port; or says which one is there that nobody could tell from it.
    pub fn add(&mut self, dp_port: u32, c: &Config, owner: (Bridge, OfPort)) -> Result<(), (Bridge, OfPort)> {
        let shape = Shape {
            dp_port,
            in_key: match c.in_key {
                Key::None => Some(0),
                Key::Fixed(n) => Some(n),
                Key::Flow => None,
            },
            local: match c.local {
                Address::Any => Local::Any,
                Address::Flow => Local::Flow,
                Address::Fixed(a) => Local::Fixed(mapped(a)),
            },
            remote: c.remote.fixed().map(mapped),
        };
        match self.0.get(&shape) {
            Some(there) => Err(there.port),
            None => {
                self.0.insert(shape, Owner { port: owner, inner: c.inner });
                Ok(())
            }
        }
    }

    /// The port of a packet that came out of a tunnel. Fixed keys go before those that flows match, then fixed
    /// remote addresses, then fixed local ones. *cost*: twelve probes of a hash table at most.
    pub fn find(&self, key: &DpKey) -> Option<(Bridge, OfPort)> {
        let t = &key.tun;
        let src = mapped(address(t.src.get(), &t.ipv6_src));
        let dst = mapped(address(t.dst.get(), &t.ipv6_dst));
        for in_key in [Some(t.id.get()), None] {
            for remote in [Some(src), None] {
                for local in [Local::Fixed(dst), Local::Any, Local::Flow] {
                    let shape = Shape { dp_port: key.base.in_port, in_key, local, remote };
                    if let Some(found) = self.0.get(&shape) {
                        return found.takes(key).then_some(found.port);
                    }
                }
            }
        }
        None
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Some tunnel port has this port of the datapath.
    pub fn has_dp_port(&self, dp_port: u32) -> bool {
        self.0.keys().any(|s| s.dp_port == dp_port)
    }
}

impl Owner {
    /// A port of one kind of packets takes no other.
    fn takes(&self, key: &DpKey) -> bool {
        match self.inner {
            Inner::Ethernet => key.misc.packet_type == 0,
            Inner::Layer3 => key.misc.packet_type != 0,
            Inner::Any => true,
        }
    }
}

fn mapped(a: IpAddr) -> Ipv6Addr {
    match a {
        IpAddr::V4(a) => a.to_ipv6_mapped(),
        IpAddr::V6(a) => a,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use fv_dpif::TunnelKind;

    fn config(o: &[(&str, &str)]) -> Config {
        let o = o.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        parse("t", TunnelKind::Vxlan, &o).unwrap().0
    }

    #[test]
    fn the_most_exact_port_wins() {
        let mut e = Endpoints::default();
        let ports: [&[(&str, &str)]; 5] = [
            &[("remote_ip", "flow"), ("key", "flow")],
            &[("remote_ip", "10.0.0.2"), ("key", "flow")],
            &[("remote_ip", "10.0.0.2"), ("key", "5")],
            &[("remote_ip", "10.0.0.2"), ("key", "5"), ("local_ip", "10.0.0.1")],
            &[("remote_ip", "2001::2"), ("key", "5")],
        ];
        for (i, o) in ports.iter().enumerate() {
            e.add(1, &config(o), (0, OfPort(i as u32))).unwrap();
        }
        assert_eq!(e.add(1, &config(ports[2]), (0, OfPort(9))), Err((0, OfPort(2))));
        let find = |id: u64, src: [u8; 4], dst: [u8; 4]| {
            let mut k = DpKey::default();
            k.base.in_port = 1;
            k.tun.id = id.into();
            k.tun.src = u32::from_be_bytes(src).into();
            k.tun.dst = u32::from_be_bytes(dst).into();
            e.find(&k).map(|(_, p)| p.0)
        };
        assert_eq!(find(5, [10, 0, 0, 2], [10, 0, 0, 1]), Some(3));
        assert_eq!(find(5, [10, 0, 0, 2], [10, 0, 0, 7]), Some(2));
        assert_eq!(find(6, [10, 0, 0, 2], [10, 0, 0, 1]), Some(1));
        assert_eq!(find(5, [10, 0, 0, 3], [10, 0, 0, 1]), Some(0));
        let mut k = DpKey::default();
        k.base.in_port = 1;
        k.tun.id = 5.into();
        k.tun.ipv6_src = "2001::2".parse::<Ipv6Addr>().unwrap().octets();
        k.tun.ipv6_dst = k.tun.ipv6_src;
        assert_eq!(e.find(&k).map(|(_, p)| p.0), Some(4));
        k.base.in_port = 2;
        assert_eq!(e.find(&k), None);
    }
}
