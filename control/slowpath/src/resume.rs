//! Paused pipelines: what of them travels to a controller, and what a controller brings back.

use fv_flow::FieldValue;
use fv_ofproto::view::{BridgeId, View};
use fv_openflow::msg::continuation::MAX_PUSHED;
use fv_openflow::msg::packet::{Continuation, PacketIn};
use fv_xlate::{Frozen, Pushed};

/// Marks our identifiers of bridges.
const MARK: [u8; 12] = *b"fv-continued";

fn name_of(b: BridgeId) -> [u8; 16] {
    let mut name = [0; 16];
    name[..12].copy_from_slice(&MARK);
    name[12..].copy_from_slice(&b.0.to_be_bytes());
    name
}

fn bridge_of(name: &[u8; 16]) -> Option<BridgeId> {
    let (mark, id) = name.split_first_chunk::<12>()?;
    (*mark == MARK).then(|| id.try_into().ok().map(u32::from_be_bytes).map(BridgeId))?
}

/// `odp_port` is where the packet came in.
pub fn continuation(f: &Frozen, odp_port: u32) -> Continuation {
    let bytes = |p: &Pushed| p.value.to_be_bytes(p.n_bytes.into());
    Continuation {
        bridge: name_of(f.bridge),
        stack: f.stack.iter().map(bytes).collect(),
        mirrors: 0,
        conntracked: false,
        actions: f.actions.clone(),
        action_set: f.action_set.clone(),
        odp_port: Some(odp_port),
    }
}

/// The pipeline to go on with. None without a continuation, or if its bridge is gone.
pub fn resumed(p: &PacketIn, view: &View) -> Option<Frozen> {
    let c = p.continuation.as_ref()?;
    let bridge = bridge_of(&c.bridge).filter(|b| view.bridges.contains_key(b))?;
    let pushed = |b: &Vec<u8>| Pushed { value: FieldValue::from_be_bytes(b), n_bytes: b.len().min(MAX_PUSHED) as u8 };
    Some(Frozen {
        bridge,
        table: 0,
        key: p.metadata.key,
        stack: c.stack.iter().map(pushed).collect(),
        action_set: c.action_set.clone(),
        actions: c.actions.clone(),
        cookie: u64::MAX,
        userdata: Vec::new(),
        pause: false,
    })
}

#[cfg(test)]
mod tests {
    use fv_ofproto::{Ofproto, Settings};
    use fv_openflow::action::Action;

    use super::*;

    #[test]
    fn what_was_paused_comes_back_to_its_bridge_alone() {
        let of = Ofproto::new(BridgeId(3), "br0", Settings::default(), fv_core::Nanos::ZERO);
        let view = View::of([of.view()], 1);
        let mut key = fv_flow::FlowKey::default();
        key.pipe.regs[3] = 5;
        let paused = Frozen {
            bridge: BridgeId(3),
            table: 0,
            key,
            stack: vec![
                Pushed { value: 5u64.into(), n_bytes: 1 },
                Pushed { value: FieldValue::ones(992), n_bytes: 124 },
            ],
            action_set: vec![Action::Group(1)],
            actions: vec![Action::UnrollXlate { table: 9, cookie: 7 }, Action::Exit],
            cookie: u64::MAX,
            userdata: vec![],
            pause: false,
        };
        let mut p = PacketIn { continuation: Some(Box::new(continuation(&paused, 4))), ..PacketIn::default() };
        p.metadata.key = key;
        assert_eq!(resumed(&p, &view), Some(paused));
        assert_eq!(resumed(&p, &View::default()), None, "the bridge is gone");
        let mut forged = p.clone();
        if let Some(c) = &mut forged.continuation {
            c.bridge = [9; 16];
        }
        assert_eq!(resumed(&forged, &view), None);
        assert_eq!(resumed(&PacketIn::default(), &view), None, "nothing was paused");
    }
}
