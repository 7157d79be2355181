//! Whether our megaflows are the reference's or wider ones.
//!
//! Rules that a packet teaches take part in the reference's lookups at once, though no version sees
//! them yet: they make its masks longer, and so do some hashes of groups. Only cases with these are compared
//! this way.

/// The attributes of a flow as text, one by one, without regard to nesting.
fn items(flow: &str) -> Vec<&str> {
    flow.split([',', '(', ')']).filter(|s| !s.is_empty()).collect()
}

/// Every attribute of `wide` is one of `narrow`.
fn covers(wide: &str, narrow: &str) -> bool {
    let n = items(narrow);
    items(wide).iter().all(|i| n.contains(i))
}

/// The same by the names of fields: which bits of one are matched, the tries decide.
fn names_cover(wide: &str, narrow: &str) -> bool {
    let names = |t| items(t).into_iter().map(|i| i.split('=').next().unwrap_or(i)).collect::<Vec<_>>();
    let n = names(narrow);
    names(wide).iter().all(|i| n.contains(i))
}

/// Two traces that differ in nothing but megaflows, ours being wider.
pub fn traces(reference: &str, ours: &str) -> bool {
    reference.lines().count() == ours.lines().count()
        && reference
            .lines()
            .zip(ours.lines())
            .all(|(r, o)| r == o || r.starts_with("Megaflow: ") && o.starts_with("Megaflow: ") && names_cover(o, r))
}

/// (match, actions) of a line of a dump.
fn parts(line: &str) -> Option<(&str, &str)> {
    let (m, rest) = line.split_once(", packets:")?;
    Some((m, rest.split_once("actions:")?.1))
}

/// Two dumps in which each flow of the reference is covered by one of ours that does the same. Ours may
/// be more and older, and then narrower: the reference deletes flows that learn where a limit is reached.
pub fn dumps(reference: &str, ours: &str) -> bool {
    let of = |t: &str| t.lines().filter_map(parts).map(|(m, a)| (m.to_string(), a.to_string())).collect::<Vec<_>>();
    let (r, o) = (of(reference), of(ours));
    let same = |o: &(String, String), r: &(String, String)| o.1 == r.1 && (covers(&o.0, &r.0) || covers(&r.0, &o.0));
    r.iter().all(|r| o.iter().any(|o| same(o, r)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wider_is_equal_and_narrower_is_not() {
        let (wide, narrow) =
            ("Megaflow: eth,ip,in_port=1,nw_frag=no", "Megaflow: eth,ip,in_port=1,nw_ttl=9,nw_frag=no");
        assert!(traces(narrow, wide) && !traces(wide, narrow));
        let flow = |m: &str, a: &str| {
            format!("in_port(1),eth_type(0x0800),ipv4({m}frag=no), packets:0, bytes:0, used:never, actions:{a}\n")
        };
        assert!(dumps(&(flow("ttl=9,", "2") + &flow("ttl=8,", "2")), &flow("", "2")));
        assert!(dumps(&flow("", "2"), &flow("ttl=9,", "2")) && !dumps(&flow("ttl=8,", "2"), &flow("ttl=9,", "2")));
        assert!(!dumps(&flow("ttl=9,", "3"), &flow("", "2")));
        assert!(dumps("", &flow("", "2")) && !dumps(&flow("", "2"), ""));
    }
}
