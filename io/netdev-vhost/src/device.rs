//! The interface types `dpdkvhostuserclient`, which connects to a front end that listens, and `dpdkvhostuser`,
//! which listens in the run directory.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fv_netdev::{
    Changed, Device, DeviceError, DeviceStatus, EnabledQueues, Env, Options, Polling, PortStats, Registry, RxQueue,
    TxOffloads, TxQueue,
};
use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use crate::hub::{Hubs, Target};
use crate::live::{Rx, Totals, Tx};
use crate::port::Port;
use crate::session::PAIRS_MAX;

/// Where a client port's front end listens.
const SERVER_PATH: &str = "vhost-server-path";
/// How often a burst that finds a ring full looks again.
const RETRIES_MAX: &str = "tx-retries-max";
const RETRIES_DEFAULT: u32 = 8;
const RETRIES_LIMIT: u32 = 32;
/// Longest path of a Unix socket.
const PATH_LIMIT: usize = 107;
/// MTUs that can be set.
const MTUS: std::ops::RangeInclusive<u32> = 68..=9702;

const CLIENT: &str = "dpdkvhostuserclient";
const SERVER: &str = "dpdkvhostuser";

pub struct VhostDevice {
    port: Arc<Port>,
    id: u64,
    hubs: Hubs,
    kind: &'static str,
    /// The socket that front ends connect to; its file goes with it.
    listener: Option<Listener>,
    options: Mutex<VhostOptions>,
}

#[derive(Clone, PartialEq, Eq, Default)]
struct VhostOptions {
    server_path: Option<PathBuf>,
    retries_max: Option<u32>,
}

struct Listener {
    path: PathBuf,
    /// Of the file that was made here: another one by that name is somebody else's.
    inode: Option<u64>,
}

/// Offers both types.
pub fn register(hubs: &Hubs, registry: &mut Registry) {
    let h = hubs.clone();
    registry.register(CLIENT, move |name, options, _| Ok(Arc::new(VhostDevice::client(name, options, &h)?)));
    let h = hubs.clone();
    registry.register(SERVER, move |name, options, env| Ok(Arc::new(VhostDevice::server(name, options, env, &h)?)));
}

impl VhostDevice {
    fn client(name: &str, options: &Options, hubs: &Hubs) -> Result<VhostDevice, DeviceError> {
        let options = VhostOptions::parse(options, true)?;
        let target = Target::Connect(options.server_path.clone());
        Ok(VhostDevice::new(name, CLIENT, None, options, target, hubs))
    }

    fn server(name: &str, options: &Options, env: &Env, hubs: &Hubs) -> Result<VhostDevice, DeviceError> {
        if name.is_empty() || name.contains(['/', '\\']) || name.starts_with('.') {
            return Err(DeviceError::BadName(name.into()));
        }
        let options = VhostOptions::parse(options, false)?;
        let path = env.rundir.join(name);
        let (socket, listener) = Listener::open(&path)?;
        let target = Target::Listen(Arc::new(socket));
        let device = VhostDevice::new(name, SERVER, Some(listener), options, target, hubs);
        device.port.report(|c| c.socket = path.display().to_string());
        log::info!(target: "vhost", "{name}: front ends are awaited at {}", path.display());
        Ok(device)
    }

    fn new(
        name: &str,
        kind: &'static str,
        listener: Option<Listener>,
        options: VhostOptions,
        target: Target,
        hubs: &Hubs,
    ) -> VhostDevice {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Relaxed);
        let port = Arc::new(Port::new(name, hubs.alarm(), random_mac(id)));
        port.set_retries_max(options.retries());
        hubs.add(id, port.clone(), target);
        VhostDevice { port, id, hubs: hubs.clone(), kind, listener, options: Mutex::new(options) }
    }
}

impl Drop for VhostDevice {
    fn drop(&mut self) {
        self.hubs.remove(self.id);
        if let Some(l) = &self.listener {
            l.remove();
        }
    }
}

impl VhostOptions {
    fn parse(options: &Options, client: bool) -> Result<VhostOptions, DeviceError> {
        let path = options.get(SERVER_PATH).filter(|p| client && !p.is_empty());
        if let Some(p) = path
            && (p.len() > PATH_LIMIT || p.contains('\0'))
        {
            return Err(DeviceError::bad_option(SERVER_PATH, p, "no path of a socket"));
        }
        let retries_max = match options.get(RETRIES_MAX) {
            None => None,
            Some(text) => {
                let n = text.parse().ok().filter(|n| *n <= RETRIES_LIMIT);
                let why = || DeviceError::bad_option(RETRIES_MAX, text, format!("not from 0 to {RETRIES_LIMIT}"));
                Some(n.ok_or_else(why)?)
            }
        };
        Ok(VhostOptions { server_path: path.map(PathBuf::from), retries_max })
    }

    fn retries(&self) -> u32 {
        self.retries_max.unwrap_or(RETRIES_DEFAULT)
    }
}

impl Listener {
    fn open(path: &Path) -> Result<(OwnedFd, Listener), DeviceError> {
        let io = |e: rustix::io::Errno| DeviceError::io(path.display().to_string(), e);
        // What an earlier process left; a file that is no socket stays, and the bind fails.
        if std::fs::symlink_metadata(path).is_ok_and(|m| std::os::unix::fs::FileTypeExt::is_socket(&m.file_type())) {
            let _ = std::fs::remove_file(path);
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(io)?;
        bind(&socket, &SocketAddrUnix::new(path).map_err(io)?).map_err(io)?;
        listen(&socket, 8).map_err(io)?;
        let inode = std::fs::symlink_metadata(path).ok().map(|m| m.ino());
        Ok((socket, Listener { path: path.into(), inode }))
    }

    fn remove(&self) {
        if std::fs::symlink_metadata(&self.path).ok().map(|m| m.ino()) == self.inode {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A locally administered address that no other port of this process has.
fn random_mac(id: u64) -> [u8; 6] {
    use std::hash::{BuildHasher, RandomState};
    let b = RandomState::new().hash_one(id).to_be_bytes();
    [b[0] & 0xfc | 0x02, b[1], b[2], b[3], b[4], b[5]]
}

impl Device for VhostDevice {
    fn name(&self) -> &str {
        &self.port.name
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn polling(&self) -> Polling {
        Polling::Poll
    }

    fn n_rxq(&self) -> usize {
        self.port.pairs()
    }

    fn n_txq(&self) -> usize {
        self.port.pairs()
    }

    fn numa_id(&self) -> Option<i32> {
        self.port.control.lock().connection.numa.or(Some(0))
    }

    fn open_rxq(&self, q: usize) -> Result<Box<dyn RxQueue>, DeviceError> {
        if q >= PAIRS_MAX {
            return Err(DeviceError::NoQueue(q));
        }
        Ok(Box::new(Rx { port: self.port.clone(), q }))
    }

    fn open_txq(&self, q: usize) -> Result<Box<dyn TxQueue>, DeviceError> {
        if q >= PAIRS_MAX {
            return Err(DeviceError::NoQueue(q));
        }
        Ok(Box::new(Tx { port: self.port.clone(), q }))
    }

    fn enabled_rxqs(&self) -> Option<Arc<EnabledQueues>> {
        Some(self.port.enabled.clone())
    }

    fn status(&self) -> DeviceStatus {
        let control = self.port.control.lock();
        let mut config = Vec::new();
        let options = self.options.lock().clone();
        if let Some(n) = options.retries_max {
            config.push((RETRIES_MAX.to_string(), n.to_string()));
        }
        if let Some(p) = &options.server_path {
            config.push((SERVER_PATH.to_string(), p.display().to_string()));
        }
        DeviceStatus {
            mac: Some(control.mac),
            mtu: Some(control.mtu),
            admin_up: control.admin_up,
            link_up: control.link_up,
            link_resets: control.link_resets,
            config,
            driver: self.driver_status(&control, &options),
            ..DeviceStatus::default()
        }
    }

    fn stats(&self) -> PortStats {
        let sum = |all: &mut dyn Iterator<Item = Totals>| all.fold(Totals::default(), Totals::plus);
        let rx = sum(&mut self.port.rx.iter().map(|s| s.totals()));
        let tx = sum(&mut self.port.tx.iter().map(|s| s.totals()));
        let own = |v: &AtomicU64| v.load(Relaxed);
        let (long, no_ring, contended) = (own(&self.port.too_long), own(&self.port.no_ring), own(&self.port.contended));
        let failures = tx.ring_full + no_ring + contended + tx.stopped;
        let custom = [
            ("ovs_tx_failure_drops", failures),
            ("ovs_tx_mtu_exceeded_drops", long + tx.too_long),
            ("ovs_tx_invalid_hwol_drops", tx.bad_offload),
            ("tx_ring_full_drops", tx.ring_full),
            ("tx_not_connected_drops", no_ring),
            ("tx_contention_drops", contended),
            ("tx_ring_stopped_drops", tx.stopped),
            ("rx_bad_header_drops", rx.bad_header),
            ("rx_short_drops", rx.short),
            ("guest_notifications", rx.calls + tx.calls),
            ("vhost_bad_messages", own(&self.port.bad_messages)),
        ];
        PortStats {
            rx_packets: Some(rx.packets),
            tx_packets: Some(tx.packets),
            rx_bytes: Some(rx.bytes),
            tx_bytes: Some(tx.bytes),
            rx_dropped: Some(0),
            tx_dropped: Some(failures + long + tx.too_long + tx.bad_offload),
            rx_errors: Some(rx.bad_header + rx.short),
            tx_errors: Some(0),
            rx_length_errors: Some(rx.short),
            custom: custom.map(|(k, v)| (k.to_string(), v)).to_vec(),
            ..PortStats::default()
        }
    }

    fn change_seq(&self) -> u64 {
        self.port.change_seq()
    }

    /// What a guest does not take, its ring does in software: guests differ, and change.
    fn offloads(&self) -> TxOffloads {
        TxOffloads::ALL
    }

    fn set_mac(&self, mac: [u8; 6]) -> Result<(), DeviceError> {
        self.port.control.lock().mac = mac;
        self.port.changed();
        Ok(())
    }

    fn set_mtu(&self, mtu: u32) -> Result<(), DeviceError> {
        if !MTUS.contains(&mtu) {
            let why = format!("not from {} to {}", MTUS.start(), MTUS.end());
            return Err(DeviceError::bad_option("mtu_request", &mtu.to_string(), why));
        }
        self.port.set_mtu(mtu);
        Ok(())
    }

    fn set_admin_up(&self, up: bool) -> Result<(), DeviceError> {
        self.port.set_admin_up(up);
        Ok(())
    }

    fn set_options(&self, options: &Options) -> Result<Changed, DeviceError> {
        let new = VhostOptions::parse(options, self.kind == CLIENT)?;
        let old = std::mem::replace(&mut *self.options.lock(), new.clone());
        if old.server_path != new.server_path && self.kind == CLIENT {
            self.hubs.aim(self.id, new.server_path.clone());
        }
        if old.retries() != new.retries() {
            self.port.set_retries_max(new.retries());
            log::info!(target: "vhost", "{}: max Tx retries is set to {}", self.port.name, new.retries());
        }
        Ok(if old == new { Changed::Nothing } else { Changed::Status })
    }

    fn remove(&self) {}
}

impl VhostDevice {
    /// The `status` column, with the keys that tools know.
    fn driver_status(&self, control: &crate::port::Control, options: &VhostOptions) -> BTreeMap<String, String> {
        let (c, pairs) = (&control.connection, self.port.pairs());
        let mut s = BTreeMap::new();
        let mut put = |k: &str, v: String| s.insert(k.to_string(), v);
        put("mode", if self.kind == CLIENT { "client" } else { "server" }.into());
        put("status", if c.connected { "connected" } else { "disconnected" }.into());
        if let Some(e) = &c.error {
            put("error", e.clone());
        }
        if self.kind == CLIENT && options.server_path.is_none() {
            put("error", format!("options:{SERVER_PATH} is not set"));
        }
        if !c.connected {
            return s;
        }
        put("socket", c.socket.clone());
        put("features", format!("{:#018x}", c.features));
        put("mtu", if c.guest_mtu == 0 { control.mtu } else { c.guest_mtu.into() }.to_string());
        put("numa", c.numa.unwrap_or(0).to_string());
        put("num_of_vrings", c.ring_sizes.len().to_string());
        for (i, size) in c.ring_sizes.iter().enumerate() {
            put(&format!("vring_{i}_size"), size.to_string());
        }
        put("n_rxq", pairs.to_string());
        put("n_txq", pairs.to_string());
        put("userspace-tso", "enabled".into());
        s
    }
}
