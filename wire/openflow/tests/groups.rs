//! Groups, meters and queues as `ovs-ofctl` and the reference's switch wrote them, as
//! `hex TAB text`, and the errors of the malformed.

use fv_openflow::OfError;
use fv_openflow::msg::{DecodeCx, Message};
use fv_openflow::text::log_line;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn hex(b: &[u8]) -> String {
    b.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn messages_of_the_reference() {
    let (mut bad, mut n) = (Vec::new(), 0);
    for line in include_str!("data/groups.txt").lines().chain(include_str!("data/monitors.txt").lines()) {
        let (h, text) = line.split_once('\t').unwrap();
        let bytes = bytes(h);
        n += 1;
        match Message::decode(&bytes, &DecodeCx::default()) {
            Err(e) => bad.push(format!("{e}: {text}\n  {h}")),
            Ok(m) => {
                let again = m.encode().unwrap();
                if again != bytes {
                    bad.push(format!("differs: {text}\n  {h}\n  {}", hex(&again)));
                }
                let got = log_line(&m).replace('\n', "\\n");
                if got != text {
                    bad.push(format!("want {text}\n got {got}"));
                }
            }
        }
    }
    assert!(n > 300, "{n}");
    assert!(bad.is_empty(), "{} of {n}\n{}", bad.len(), bad.join("\n"));
}

/// Group- and meter-mods with some bytes changed, and what the reference makes of them.
#[test]
fn errors_of_the_reference() {
    let (mut bad, mut n) = (Vec::new(), 0);
    for line in include_str!("data/group_errors.txt").lines() {
        let (h, want) = line.split_once('\t').unwrap();
        n += 1;
        let got = Message::decode(&bytes(h), &DecodeCx::default()).map(|m| {
            // What is accepted is also encoded, and that is accepted again.
            let again = Message::decode(&m.encode().unwrap(), &DecodeCx::default());
            assert!(again.is_ok(), "{again:?} {h}");
            let _ = log_line(&m);
        });
        let got = got.map_or_else(|e| e.to_string(), |()| "OK".to_owned());
        if got != want {
            bad.push(format!("want {want}, got {got}: {h}"));
        }
    }
    assert!(n > 700, "{n}");
    assert!(bad.is_empty(), "{} of {n}\n{}", bad.len(), bad.join("\n"));
}

/// Messages that have brought down switches: each is refused, and costs no more than its bytes.
#[test]
fn messages_that_broke_others() {
    let check = |body: &str, want: OfError| {
        let body = bytes(&body.replace(' ', ""));
        let mut m = vec![6, 15];
        m.extend(((8 + body.len()) as u16).to_be_bytes());
        m.extend([0, 0, 0, 1]);
        m.extend(body);
        assert_eq!(Message::decode(&m, &DecodeCx::default()).err(), Some(want));
    };
    let method = "ffff 0028 0000154d 00000001 00000000 68617368 00000000 00000000 00000000 0000000000000000";
    // A property of length 0, in the group and in its bucket.
    check("0000 01 00 00000001 0000 0000 ffffffff 0000 0000 00000000", OfError::BpcBadLen);
    check("0000 01 00 00000001 0010 0000 ffffffff 0010 0000 00000000 0000 0000 00000000", OfError::BpcBadLen);
    // A bucket that is longer than the message, one that is longer than the list, one of no length.
    check("0000 00 00 00000001 ffff 0000 ffffffff ffff 0000 00000000", OfError::BrcBadLen);
    check("0000 00 00 00000001 0008 0000 ffffffff ffff 0000 00000000", OfError::GmfcBadBucket);
    check("0000 00 00 00000001 0008 0000 ffffffff 0000 0000 00000000", OfError::GmfcBadBucket);
    check("0000 00 00 00000001 0008 0000 ffffffff 0008 0100 00000000", OfError::GmfcBadBucket);
    // A command or type that does not exist, and one that may not choose, with a way to choose.
    check(&format!("0006 01 00 00000001 0000 0000 ffffffff {method}"), OfError::GmfcBadCommand);
    check(&format!("0000 07 00 00000001 0000 0000 ffffffff {method}"), OfError::GmfcBadType);
    check(&format!("0002 01 00 00000001 0000 0000 ffffffff {method}"), OfError::BpcBadValue);
    check(&format!("0000 00 00 00000001 0000 0000 ffffffff {method}"), OfError::BpcBadValue);
    // The property again and again, the last one cut short.
    let many = method.repeat(40) + "ffff 0030";
    check(&format!("0000 01 00 00000001 0000 0000 ffffffff {many} 00000000"), OfError::BpcBadLen);
}

/// A request-forward holds one change of groups or meters, and nothing that would hold another.
#[test]
fn what_is_not_forwarded() {
    let check = |hex: &str, want: OfError| {
        let got = Message::decode(&bytes(&hex.replace(' ', "")), &DecodeCx::default());
        assert_eq!(got.err(), Some(want), "{hex}");
    };
    check("05200018 00000000 050200100000000000000000 00000000", OfError::BfcMsgUnsup);
    check("05200018 00000000 0520001000000000 0520000800000000", OfError::BfcMsgUnsup);
    check("05200010 00000000 050f001000000006", OfError::BfcMsgBadLen);
    check("0520000c 00000000 050f0010", OfError::BfcMsgBadLen);
    check("05200018 00000000 040f00100000000600020000fffffffc", OfError::BrcBadVersion);
}
