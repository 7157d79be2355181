//! What translation may use of the datapath; `dpif/set-dp-features` takes it away.

/// Each is what the datapath can do until someone says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DpFeatures {
    /// Packets can be cut before an output; else the slow path does it.
    pub trunc: bool,
    /// Actions can work on a copy; else each such list is a sample of all packets.
    pub clone: bool,
    /// The datapath can look at a packet's length; else the slow path does.
    pub check_pkt_len: bool,
    /// Headers of tunnels are ours to put on and take off; else ports of the datapath do it.
    pub tnl_push_pop: bool,
}

impl Default for DpFeatures {
    fn default() -> DpFeatures {
        DpFeatures { trunc: true, clone: true, check_pkt_len: true, tnl_push_pop: true }
    }
}
