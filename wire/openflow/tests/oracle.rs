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

/// Lines of `dump-flows`, as far as the recorded text goes.
#[test]
fn flows_as_text() {
    use fv_openflow::msg::stats::{Multipart, Reply};
    use fv_openflow::msg::{Body, flow::FlowStats};
    use fv_openflow::text::{Lookups, Names, format_flow_stats, parse_flow};
    let (mut bad, mut n) = (Vec::new(), 0);
    for (bytes, text) in corpus().filter(|(_, t)| t.starts_with("OFPST_FLOW reply")) {
        let m = Message::decode(&bytes, &DecodeCx::default()).unwrap();
        let Body::MultipartReply(Multipart { body: Reply::Flow(flows), .. }) = m.body else { panic!("{text}") };
        let lines: Vec<&str> = text.split("\\n").skip(1).collect();
        // The last recorded line may be cut.
        for (f, want) in flows.iter().zip(&lines[..lines.len() - 1]) {
            n += 1;
            let got = format!(" {}", format_flow_stats(f, Names::default(), true));
            if got != *want {
                bad.push(format!("want{want}\ngot {got}"));
            }
            let back: &FlowStats = f;
            let mut p = parse_flow(&got, Lookups::default()).unwrap().flow;
            // Text is about Ethernet packets; the wire says so only when it is asked.
            p.match_.mask.0.dp.misc.packet_type = 0;
            assert_eq!((p.priority, &p.actions), (back.priority, &back.actions), "{got}");
            assert_eq!(p.match_, back.match_, "{got}");
        }
    }
    assert!(n >= 6, "{n}");
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// Flow-mods in the log.
#[test]
fn flow_mods_in_the_log() {
    let (mut bad, mut n) = (Vec::new(), 0);
    for (bytes, want) in corpus().filter(|(_, t)| t.contains("_FLOW_MOD") && !t.contains("TABLE_ID")) {
        let cx = DecodeCx { flow_mod_table_id: want.contains(" table:") };
        n += 1;
        let got = fv_openflow::text::log_line(&Message::decode(&bytes, &cx).unwrap());
        // We say the exact mask less, and the NSH context more.
        let differs = want.contains("0xfffff->mpls") || want.contains("nsh_flags");
        if got != want.replace("\\n", "\n") && !differs {
            bad.push(format!("want {want}\ngot  {got}"));
        }
    }
    assert!(n > 1000);
    assert!(bad.is_empty(), "{} of {n}\n{}", bad.len(), bad.join("\n"));
}

/// Flow-mods with one byte changed or cut short, and the error that the reference has for them.
#[test]
fn errors_of_the_reference() {
    use fv_openflow::OfError;
    let (mut bad, mut n) = (Vec::new(), 0);
    for line in include_str!("data/errors.txt").lines() {
        let (hex, want) = line.split_once('\t').unwrap();
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        let got = Message::decode(&bytes, &DecodeCx::default());
        n += 1;
        if got.as_ref().err() != Some(&OfError::from_name(want).unwrap()) {
            bad.push(format!("want {want}, got {:?}: {hex}", got.err()));
        }
    }
    assert!(n > 200);
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}
