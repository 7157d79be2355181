//! What the debug log says of misses and flows. Cold, and free while the level is off.

use std::sync::Arc;

use fv_core::Ufid;
use fv_dpif::Program;
use fv_dpif::text::format_actions;
use fv_flow::{DpKey, odp};
use fv_packet::Packet;
use log::Level::Debug;
use log::{debug, log_enabled};

use crate::flow::Flow;

/// The module under whose name users switch these lines on.
const TARGET: &str = "dpif_netdev";

pub fn miss(dp: &str, packet: &Packet, key: &DpKey) {
    if log_enabled!(target: TARGET, Debug) {
        let text = odp::format(key, None, true, None);
        debug!(target: TARGET, "{dp}: miss upcall:\n{text}\n{packet:?}");
    }
}

pub fn flow_added(flow: &Flow) {
    if log_enabled!(target: TARGET, Debug) {
        let actions = format_actions(&flow.code().source.actions, None);
        debug!(target: TARGET, "flow_add: {}, actions:{actions}", name(flow));
    }
}

pub fn flow_changed(flow: &Flow, old: &Arc<Program>) {
    if log_enabled!(target: TARGET, Debug) {
        let actions = format_actions(&flow.code().source.actions, None);
        let old = format_actions(&old.actions, None);
        debug!(target: TARGET, "flow_mod: {}, actions:{actions}, old_actions:{old}", name(flow));
    }
}

fn name(flow: &Flow) -> String {
    let key = odp::format(&flow.key(), Some(&flow.mask()), false, None);
    format!("ufid:{} mega_ufid:{} {key}", flow.ufid, Ufid(flow.megaflow))
}
