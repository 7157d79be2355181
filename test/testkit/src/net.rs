//! Network namespaces and veth pairs with names of their own.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::proc::{Out, run};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A device or namespace name no other test has: at most 15 characters.
pub fn unique(prefix: &str) -> String {
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{prefix}{:x}.{n:x}", std::process::id() & 0xf_ffff);
    assert!(name.len() <= 15, "{name} is too long for a device");
    name
}

/// Runs `ip` with the words of `line` and returns its output; panics if it fails.
#[track_caller]
pub fn ip(line: &str) -> String {
    let o = try_ip(line);
    assert!(o.ok(), "ip {line}: {}", o.stderr);
    o.stdout
}

fn try_ip(line: &str) -> Out {
    run(Command::new("ip").args(crate::words(line)), 20)
}

/// A network namespace.
pub struct Netns {
    name: String,
}

impl Netns {
    #[track_caller]
    pub fn new() -> Netns {
        let name = unique("fvn");
        ip(&format!("netns add {name}"));
        let ns = Netns { name };
        ns.ip("link set lo up");
        ns
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// `ip -n NAMESPACE line`.
    #[track_caller]
    pub fn ip(&self, line: &str) -> String {
        ip(&format!("-n {} {line}", self.name))
    }

    /// The command that runs `program args` inside.
    pub fn command(&self, line: &str) -> Command {
        let mut c = Command::new("ip");
        c.args(["netns", "exec", &self.name]).args(crate::words(line));
        c
    }

    pub fn run(&self, line: &str, secs: u64) -> Out {
        run(&self.command(line), secs)
    }

    /// True if `count` pings all come back.
    pub fn ping(&self, address: &str, count: u32) -> bool {
        self.run(&format!("ping -n -q -i 0.05 -W 2 -c {count} {address}"), 30).ok()
    }

    /// One answer within `secs`: the path works.
    #[track_caller]
    pub fn wait_ping(&self, address: &str, secs: u64) {
        let ok = crate::wait_value(secs, || self.run(&format!("ping -n -q -W 1 -c 1 {address}"), 5).ok().then_some(()));
        assert!(ok.is_some(), "{}: no ping to {address} within {secs} s", self.name);
    }
}

impl Default for Netns {
    fn default() -> Netns {
        Netns::new()
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = try_ip(&format!("netns del {}", self.name));
    }
}

/// A veth pair: one end here, the other in a namespace as `eth0`, with default offloads.
pub struct Veth {
    outer: String,
}

impl Veth {
    /// The inner end gets `addresses` (with prefix lengths).
    #[track_caller]
    pub fn new(ns: &Netns, addresses: &[&str]) -> Veth {
        Veth::named(ns, "eth0", addresses)
    }

    #[track_caller]
    pub fn named(ns: &Netns, inner: &str, addresses: &[&str]) -> Veth {
        let outer = unique("fvv");
        ip(&format!("link add {outer} type veth peer name {inner} netns {}", ns.name()));
        let v = Veth { outer };
        for a in addresses {
            let dad = if a.contains(':') { "nodad" } else { "" };
            ns.ip(&format!("addr add {a} dev {inner} {dad}"));
        }
        ns.ip(&format!("link set {inner} up"));
        ip(&format!("link set {} up", v.outer));
        v
    }

    pub fn outer(&self) -> &str {
        &self.outer
    }

    /// Removes the pair now.
    pub fn delete(&self) {
        let _ = try_ip(&format!("link del {}", self.outer));
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        self.delete();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_and_its_pair_go_with_their_values() {
        let (ns_name, dev);
        {
            let ns = Netns::new();
            let v = Veth::new(&ns, &["198.18.0.1/24", "fd00:198:18::1/64"]);
            ns_name = ns.name().to_string();
            dev = v.outer().to_string();
            assert!(ns.ip("-o addr show dev eth0").contains("198.18.0.1/24"));
            assert!(ip("-o link show").contains(&dev));
        }
        assert!(!ip("netns list").contains(&ns_name));
        assert!(!ip("-o link show").contains(&dev));
    }
}
