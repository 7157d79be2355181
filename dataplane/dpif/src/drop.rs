//! Why the datapath dropped a packet. Each reason is a counter under the reference's name where it has one.

use fv_core::Counter;

macro_rules! reasons {
    ($($(#[$m:meta])* $id:ident = $name:literal),* $(,)?) => {
        /// The closed list of reasons for which a packet is dropped in the datapath.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$m])* $id),* }
        impl DropReason {
            pub const ALL: &'static [DropReason] = &[$(DropReason::$id),*];
            /// The coverage counter's name.
            pub const fn name(self) -> &'static str { match self { $(DropReason::$id => $name),* } }
        }
        static TABLE: [Counter; DropReason::ALL.len()] = [$(Counter::new($name)),*];
    };
}

reasons! {
    /// The program upcall failed or was refused.
    UpcallError = "datapath_drop_upcall_error",
    LockError = "datapath_drop_lock_error",
    UserspaceActionError = "datapath_drop_userspace_action_error",
    TunnelPushError = "datapath_drop_tunnel_push_error",
    TunnelPopError = "datapath_drop_tunnel_pop_error",
    RecircError = "datapath_drop_recirc_error",
    InvalidPort = "datapath_drop_invalid_port",
    InvalidBond = "datapath_drop_invalid_bond",
    InvalidTunnelPort = "datapath_drop_invalid_tnl_port",
    RxInvalidPacket = "datapath_drop_rx_invalid_packet",
    HwPostProcess = "datapath_drop_hw_post_process",
    Meter = "datapath_drop_meter",
    SampleError = "datapath_drop_sample_error",
    NshDecapError = "datapath_drop_nsh_decap_error",
    /// A flow's actions are empty.
    ActionOfPipeline = "drop_action_of_pipeline",
    // What translation could not do; the program says so by [`DropReason::of_action`]'s codes.
    BridgeNotFound = "drop_action_bridge_not_found",
    RecursionTooDeep = "drop_action_recursion_too_deep",
    TooManyResubmits = "drop_action_too_many_resubmit",
    StackTooDeep = "drop_action_stack_too_deep",
    NoRecirculationContext = "drop_action_no_recirculation_context",
    RecirculationConflict = "drop_action_recirculation_conflict",
    TooManyMplsLabels = "drop_action_too_many_mpls_labels",
    InvalidTunnelMetadata = "drop_action_invalid_tunnel_metadata",
    UnsupportedPacketType = "drop_action_unsupported_packet_type",
    Congestion = "drop_action_congestion",
    ForwardingDisabled = "drop_action_forwarding_disabled",
    /// A queue of packets waiting for a verdict was full.
    UpcallQueueFull = "datapath_drop_upcall_queue_full",
    /// The device took fewer packets than offered.
    TxFull = "datapath_drop_tx_full",
    /// A GSO packet or its offload request could not be honoured.
    BadOffload = "datapath_drop_bad_offload",
    /// A header that an action rewrites is not in the packet.
    ActionNoHeader = "datapath_drop_action_no_header",
    /// An action that this datapath cannot perform, or a program nested too deep.
    ActionUnsupported = "datapath_drop_action_unsupported",
    /// A tunnel's first hop did not answer in time.
    TunnelNeighbour = "drop_action_tunnel_neigh_cache_miss",
    /// An outer header is cut short, or its lengths lie.
    TunnelTruncated = "datapath_drop_tunnel_truncated",
    /// An outer packet is a fragment.
    TunnelFragment = "datapath_drop_tunnel_fragment",
    /// An outer checksum is wrong.
    TunnelChecksum = "datapath_drop_tunnel_checksum",
    /// A tunnel header of a version, with flags or of a payload that its kind does not have.
    TunnelHeader = "datapath_drop_tunnel_header",
    /// The switch waits for its flow tables to be restored.
    FlowRestoreWait = "datapath_drop_flow_restore_wait",
}

impl DropReason {
    /// The reasons that a `drop` action may give, by its code; others are the pipeline's.
    pub fn of_action(code: u32) -> DropReason {
        use DropReason::*;
        const CODES: [DropReason; 12] = [
            ActionOfPipeline,
            BridgeNotFound,
            RecursionTooDeep,
            TooManyResubmits,
            StackTooDeep,
            NoRecirculationContext,
            RecirculationConflict,
            TooManyMplsLabels,
            InvalidTunnelMetadata,
            UnsupportedPacketType,
            Congestion,
            ForwardingDisabled,
        ];
        CODES.get(code as usize).copied().unwrap_or(ActionOfPipeline)
    }

    pub fn counter(self) -> &'static Counter {
        &TABLE[self as usize]
    }
    /// Counts `n` packets.
    pub fn count(self, n: u64) {
        self.counter().add(n);
    }
}
