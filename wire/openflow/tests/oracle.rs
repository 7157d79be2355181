//! Messages that `ovs-ofctl` wrote, as `hex TAB text`: they decode, and encode to the same bytes.

use fv_openflow::msg::{DecodeCx, Message};

/// What `ovs-ofctl` sent, and what the reference's switch answered.
fn corpus() -> impl Iterator<Item = (Vec<u8>, &'static str)> {
    include_str!("data/oracle.txt").lines().chain(include_str!("data/replies.txt").lines()).map(|l| {
        let (hex, text) = l.split_once('\t').unwrap();
        let bytes = (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        (bytes, text)
    })
}

fn hex(b: &[u8]) -> String {
    b.iter().map(|b| format!("{b:02x}")).collect()
}

/// Where our bytes differ from the reference's: the order of fields, exact masks left out.
const SAID_OTHERWISE: [&str; 5] = ["mpls_label", "OFPST_FLOW reply", "tun_flags", "ct_nw_src", "reg0=0x1,in_port"];

#[test]
fn messages_of_the_reference_round_trip() {
    let mut bad = Vec::new();
    for (bytes, text) in corpus() {
        let cx = DecodeCx { flow_mod_table_id: text.contains(" table:") };
        match Message::decode(&bytes, &cx) {
            Err(e) => bad.push(format!("{e}: {text}\n  {}", hex(&bytes))),
            Ok(m) => {
                let again = m.encode().unwrap();
                if again != bytes && SAID_OTHERWISE.iter().any(|t| text.contains(t)) {
                    // The same in other words: it must mean the same.
                    if Message::decode(&again, &cx).as_ref() != Ok(&m) {
                        bad.push(format!("changes meaning: {text}\n  {}\n  {}", hex(&bytes), hex(&again)));
                    }
                } else if again != bytes {
                    bad.push(format!("differs: {text}\n  {}\n  {}", hex(&bytes), hex(&again)));
                }
            }
        }
    }
    assert!(bad.is_empty(), "{} failures\n{}", bad.len(), bad.join("\n"));
}

/// `actions=...` of every flow-mod: we print what the reference prints, and read it back.
#[test]
fn actions_as_text() {
    use fv_openflow::msg::Body;
    use fv_openflow::text::{Lookups, Names, format_actions, parse_actions};
    let (mut bad, mut n) = (Vec::new(), 0);
    for (bytes, text) in corpus() {
        let Some((_, want)) = text.split_once("actions=") else { continue };
        let cx = DecodeCx { flow_mod_table_id: text.contains(" table:") };
        let Ok(m) = Message::decode(&bytes, &cx) else { continue };
        let (Body::FlowMod(f) | Body::NxFlowMod(f)) = m.body else { continue };
        n += 1;
        let got = format_actions(&f.actions, Names::default());
        // A mask that is exact goes without saying.
        if got != want && want != "set_field:10/0xfffff->mpls_label" {
            bad.push(format!("want {want}\n     got  {got}"));
        }
        match parse_actions(&got, Lookups::default()) {
            Err(e) => bad.push(format!("{got}: {e}")),
            Ok(again) => {
                let again = format_actions(&again, Names::default());
                if again != got {
                    bad.push(format!("read   {got}\n     back {again}"));
                }
            }
        }
    }
    assert!(n > 1000, "{n} texts");
    assert!(bad.is_empty(), "{} failures\n{}", bad.len(), bad.join("\n"));
}
