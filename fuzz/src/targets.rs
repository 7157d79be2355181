//! The targets and their seeds.

use fv_core::{Nanos, OfPort};
use fv_flow::extract;
use fv_ofproto::host::Host;
use fv_ofproto::view::{BridgeId, BridgeView};
use fv_ofproto::{Kind, Ofproto, Settings};
use fv_openflow::OfError;
use fv_openflow::msg::packet::{PacketOut, Resume};
use fv_openflow::msg::port::{PortStats, QueueStats};
use fv_ovsdb::{Context, Database, transact};
use fv_packet::Packet;

use crate::{rings, vhost};

pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub const TARGETS: &[Target] = &[
    Target { name: "extract", run: extract_frame, seeds: frames },
    Target { name: "segment", run: segment_frame, seeds: frames },
    Target { name: "vring_receive", run: rings::receive, seeds: rings::seeds },
    Target { name: "vring_send", run: rings::send, seeds: rings::seeds },
    Target { name: "vhost_messages", run: vhost::messages, seeds: vhost::seeds },
    Target { name: "odp_text", run: odp_text, seeds: odp_texts },
    Target { name: "match_text", run: match_text, seeds: match_texts },
    Target { name: "dp_actions_text", run: dp_actions_text, seeds: dp_actions_texts },
    Target { name: "of_actions_text", run: of_actions_text, seeds: of_actions_texts },
    Target { name: "openflow", run: openflow, seeds: openflow_messages },
    Target { name: "json_frames", run: json_frames, seeds: json_messages },
    Target { name: "ovsdb_transact", run: ovsdb_transact, seeds: json_messages },
    Target {
        name: "ovsdb_schema",
        run: ovsdb_schema,
        seeds: || vec![fv_ovsdb::vswitch::VSWITCH_SCHEMA.as_bytes().to_vec()],
    },
];

fn extract_frame(b: &[u8]) {
    let mut p = Packet::from_slice(b);
    let key = extract::extract(&mut p, &extract::Extra { vlan_limit: 2, ..Default::default() });
    let text = fv_flow::odp::format(&key, None, true, None);
    assert!(text.starts_with("recirc_id"), "{text}");
    let composed = fv_flow::compose::compose(&key, 8);
    assert!(composed.len() < 1 << 16);
}

fn segment_frame(b: &[u8]) {
    let Some((hdr, frame)) = b.split_first_chunk::<10>() else { return };
    let mut p = Packet::from_slice(frame);
    if fv_packet::vnet::from_vnet_hdr(&fv_packet::vnet::VnetHdr::from_ne_bytes(hdr), &mut p).is_err() {
        return;
    }
    let whole = p.len();
    if p.meta().gso.is_some() {
        if let Ok(segments) = fv_packet::segment::segment(p, fv_packet::segment::L4Csum::Finish) {
            let total: usize = segments.map(|s| s.len()).sum();
            assert!(total <= whole.saturating_mul(256), "{whole} bytes became {total}");
        }
    } else {
        let _ = fv_packet::csum::finish_checksum(&mut p);
    }
}

fn text(b: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(b)
}

fn odp_text(b: &[u8]) {
    if let Ok(p) = fv_flow::odp::parse(&text(b), &|_| Some(7)) {
        // Not all that is printed can be read again (wildcarded ids cannot), but it can be printed.
        for verbose in [false, true] {
            let _ = fv_flow::odp::format(&p.key, Some(&p.mask), verbose, None);
        }
    }
}

fn match_text(b: &[u8]) {
    if let Ok((m, _)) = fv_flow::text::parse_match(&text(b), Some(&|_: &str| Some(OfPort(3)))) {
        let _ = fv_flow::text::format_match(&m, None, fv_flow::text::Style::Rule);
    }
}

fn dp_actions_text(b: &[u8]) {
    if let Ok(a) = fv_dpif::text::parse_actions(&text(b), &|_| Some(2)) {
        let _ = fv_dpif::text::format_actions(&a, None);
    }
}

fn of_actions_text(b: &[u8]) {
    if let Ok(a) = fv_openflow::text::parse_actions(&text(b), Default::default()) {
        let _ = fv_openflow::text::format_actions(&a.0, Default::default());
    }
}

/// A host that has nothing.
struct NoHost;

impl Host for NoHost {
    fn pull_stats(&mut self, _: BridgeId) {}
    fn port_stats(&mut self, _: BridgeId, _: OfPort) -> Option<PortStats> {
        None
    }
    fn queue_stats(&mut self, _: BridgeId, _: OfPort) -> Vec<QueueStats> {
        Vec::new()
    }
    fn publish(&mut self, _: std::sync::Arc<BridgeView>) {}
    fn hold_packet_out(&mut self, _: BridgeId, _: &PacketOut, _: std::sync::Arc<BridgeView>) -> Result<(), OfError> {
        Ok(())
    }
    fn end_packet_outs(&mut self, _: bool) {}
    fn packet_out(&mut self, _: BridgeId, _: &PacketOut) -> Result<(), OfError> {
        Ok(())
    }
    fn resume(&mut self, _: BridgeId, _: &Resume) -> Result<(), OfError> {
        Ok(())
    }
    fn set_admin_state(&mut self, _: BridgeId, _: OfPort, _: bool) -> Option<bool> {
        None
    }
}

/// A whole connection: hello in the input's version, then the input.
fn openflow(b: &[u8]) {
    let now = Nanos::from_secs(1000);
    let mut of = Ofproto::new(BridgeId(0), "br0", Settings::default(), now);
    let id = of.connect(Kind::Service, "fuzz", now);
    let version = b.first().copied().unwrap_or(1).clamp(1, 6);
    of.receive(id, &[version, 0, 0, 8, 0, 0, 0, 1], now);
    of.turn(now, 10, &mut NoHost);
    for piece in b.chunks(4096) {
        of.receive(id, piece, now);
        of.turn(now, 100, &mut NoHost);
        let out = of.connection(id).map_or(0, |c| c.output().len());
        of.sent(id, out);
    }
}

fn json_frames(b: &[u8]) {
    let mut f = fv_rpc::jsonrpc::Framer::new(1 << 16);
    let mut rest = b;
    while !rest.is_empty() {
        let before = rest.len();
        match f.feed(&mut rest) {
            Ok(Some(text)) => drop(fv_rpc::Message::from_slice(&text)),
            Ok(None) => {}
            Err(_) => return,
        }
        assert!(rest.len() < before || rest.is_empty(), "no progress");
    }
}

fn ovsdb_transact(b: &[u8]) {
    let Ok(v) = serde_json::from_slice::<serde_json::Value>(b) else { return };
    let db = Database::new(fv_ovsdb::vswitch::vswitch_schema());
    let ops = v.get("params").and_then(|p| p.as_array()).cloned().unwrap_or_else(|| vec![v.clone()]);
    let mut n = 0u128;
    let mut fresh = || {
        n += 1;
        fv_ovsdb::Uuid::from_u128(n)
    };
    let ctx = Context { elapsed_ms: 0, read_only: false, owns_lock: &|_| true };
    transact(&db, &ops, &ctx, &mut fresh);
    let _ = fv_ovsdb::Message::from_json(v);
}

fn ovsdb_schema(b: &[u8]) {
    if let Ok(v) = serde_json::from_slice::<serde_json::Value>(b)
        && let Ok(s) = fv_ovsdb::Schema::from_json(&v)
    {
        let again = fv_ovsdb::Schema::from_json(&s.to_json());
        assert!(again.is_ok(), "{:?}", again.err());
    }
}

// Seeds.

fn frames() -> Vec<Vec<u8>> {
    let flows = [
        "in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=80),tcp_flags(syn)",
        "in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x8100),vlan(vid=5,pcp=1),encap(eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=first),udp(src=8,dst=53))",
        "in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x86dd),ipv6(src=fe80::1,dst=fe80::2,label=0,proto=58,tclass=0,hlimit=255,frag=no),icmpv6(type=135,code=0),nd(target=fe80::3,sll=50:54:00:00:00:05,tll=00:00:00:00:00:00)",
        "in_port(1),eth(src=50:54:00:00:00:09,dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),arp(sip=1.2.3.4,tip=5.6.7.8,op=1,sha=50:54:00:00:00:09,tha=00:00:00:00:00:00)",
        "in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x8847),mpls(label=100,tc=3,ttl=64,bos=1)",
    ];
    let mut v: Vec<Vec<u8>> = flows
        .iter()
        .filter_map(|f| fv_flow::odp::parse(f, &|_| None).ok())
        .map(|p| fv_flow::compose::compose(&p.key, 64))
        .collect();
    // The same behind an offload header that asks for a checksum and for segments.
    let with_header: Vec<Vec<u8>> = v
        .iter()
        .map(|f| {
            let hdr = [1u8, 1, 54, 0, 20, 0, 34, 0, 16, 0];
            [&hdr[..], f].concat()
        })
        .collect();
    v.extend(with_header);
    v.push(vec![0; 14]);
    assert!(v.len() > 5, "seeds parse");
    v
}

fn texts(list: &[&str]) -> Vec<Vec<u8>> {
    list.iter().map(|s| s.as_bytes().to_vec()).collect()
}

fn odp_texts() -> Vec<Vec<u8>> {
    texts(&[
        "recirc_id(0),in_port(1),eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x0800),ipv4(src=10.0.0.1/255.255.255.0,dst=10.0.0.2,proto=6,tos=0,ttl=64,frag=no),tcp(src=8,dst=80),tcp_flags(-syn+ack)",
        "ct_state(+trk-new),ct_zone(0x5),ct_mark(0x1/0xff),in_port(2),eth(),eth_type(0x86dd),ipv6(src=::1,frag=later)",
        "tunnel(tun_id=0x7,src=1.1.1.1,dst=2.2.2.2,flags(-df+csum+key)),in_port(3),eth_type(0x8100),vlan(vid=1,pcp=0),encap(eth_type(0x0806),arp(op=1))",
    ])
}

fn match_texts() -> Vec<Vec<u8>> {
    texts(&[
        "table=1,priority=5,tcp,in_port=1,nw_src=10.0.0.0/8,tp_dst=80,tcp_flags=+syn-ack",
        "ipv6,ipv6_src=fe80::/10,icmp_type=135,nd_target=::1",
        "dl_vlan=10,dl_vlan_pcp=3,dl_src=00:11:22:33:44:55/ff:ff:ff:00:00:00,reg0=0x5/0xff,ct_state=+trk",
        "arp,arp_op=1,arp_spa=1.2.3.4,metadata=0x1234,tun_id=7",
    ])
}

fn dp_actions_texts() -> Vec<Vec<u8>> {
    texts(&[
        "push_vlan(vid=5,pcp=0),set(ipv4(ttl=63)),set(eth(dst=00:11:22:33:44:55)),2,clone(3,drop)",
        "sample(sample=50.0%,actions(1,userspace(pid=0,slow_path(action)))),check_pkt_len(size=100,gt(1),le(2)),recirc(0x5)",
        "tnl_push(tnl_port(4),header(size=50,type=4,eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800),ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos=0,ttl=64,frag=0x4000),udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x7b)),out_port(100))",
    ])
}

fn of_actions_texts() -> Vec<Vec<u8>> {
    texts(&[
        "output:1,NORMAL,controller(max_len=128,reason=no_match),resubmit(,3),load:0x5->NXM_NX_REG0[0..7]",
        "set_field:10.0.0.1->ip_src,move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],push_vlan:0x8100,mod_vlan_vid:7,dec_ttl,goto_table:2",
        "clone(output:2,set_field:1->reg1),learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),multipath(symmetric_l4,0,modulo_n,4,0,NXM_NX_REG0[])",
    ])
}

fn openflow_messages() -> Vec<Vec<u8>> {
    let hex = [
        // Echo, features, get-config and a flow-mod of 1.0; the same and a multipart of 1.3.
        "0102000800000002",
        "0105000800000003",
        "010e0050000000040038208f000100000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000008000ffffffffffff00000000000000080001ffff",
        "010e00480000000500382000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000800000000000ffff0000",
        "040e0058000000060000000000000000000000000000000000000000000000000000000000008000ffffffffffffffffffffffff000000000001000c8000000400000001000000000004001800000000000000100000000200000000000000000000",
        "0412001000000007000d000000000000",
        "04120038000000080001000000000000ff000000ffffffffffffffff00000000000000000000000000000000000000000001000400000000",
        "010d001800000009ffffffff000100080000000800020000",
        "0404001c0000000a000023200000000a0000000000000000",
    ];
    hex.iter()
        .map(|h| (0..h.len() / 2).map(|i| u8::from_str_radix(&h[2 * i..2 * i + 2], 16).unwrap_or(0)).collect())
        .collect()
}

fn json_messages() -> Vec<Vec<u8>> {
    texts(&[
        r#"{"id":1,"method":"transact","params":["Open_vSwitch",{"op":"insert","table":"Bridge","row":{"name":"br0","ports":["set",[]]},"uuid-name":"a"},{"op":"mutate","table":"Open_vSwitch","where":[],"mutations":[["bridges","insert",["named-uuid","a"]]]}]}"#,
        r#"{"op":"select","table":"Interface","where":[["name","==","p1"],["ofport",">=",3]],"columns":["name","statistics"]}"#,
        r#"{"op":"wait","table":"Port","where":[["_uuid","includes",["uuid","00000000-0000-0000-0000-000000000001"]]],"columns":["tag"],"until":"!=","rows":[{"tag":5}],"timeout":0}"#,
        r#"{"op":"update","table":"Bridge","where":[],"row":{"other_config":["map",[["a","b"]]],"datapath_id":["set",["x"]]}}{"id":null,"method":"x","params":[]}"#,
    ])
}
