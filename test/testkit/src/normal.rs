//! Takes out of an output what differs from run to run, so that two runs can be compared.

/// Fields whose value says when, not what: `name` up to the next of `,` blank `)`.
const VOLATILE: &[&str] =
    &["duration=", "duration:", "used:", "ufid:", "xid=0x", "idle_age=", "hard_age=", "pid=", "elapsed="];

/// `text` with volatile values replaced by `?`, and blanks at line ends removed.
pub fn normalise(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut line = line.trim_end().to_string();
        for name in VOLATILE {
            line = blank_value(&line, name);
        }
        // It is printed once it differs from the duration, by the second.
        line = line.replace("hard_age=?, ", "");
        out.push_str(&line);
        out.push('\n');
    }
    out
}

fn blank_value(line: &str, name: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(name) {
        let (head, tail) = rest.split_at(at + name.len());
        out.push_str(head);
        out.push('?');
        rest = tail.trim_start_matches(|c: char| !matches!(c, ',' | ' ' | ')'));
    }
    out.push_str(rest);
    out
}

/// The lines of `text` in order, for outputs that have none of their own.
pub fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.into_iter().map(|l| format!("{l}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_volatile_values_go() {
        let check = |text: &str, expected: &str| assert_eq!(normalise(text), expected);
        check(" cookie=0x0, duration=1.2s, table=0, n_packets=3 \n", " cookie=0x0, duration=?, table=0, n_packets=3\n");
        check("packets:1, used:0.3s, actions:2", "packets:1, used:?, actions:2\n");
        check("NXST_FLOW reply (xid=0x4): x", "NXST_FLOW reply (xid=0x?): x\n");
        assert_eq!(sorted("b\na\n"), "a\nb\n");
    }
}
