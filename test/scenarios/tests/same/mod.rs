//! The same commands to the reference and to ours: what is printed must be the same. Accepted
//! differences are listed in `tests/differences.md`; `accepted` removes them and nothing else.

use fv_testkit::{Daemon, Env, Out, normalise, sorted, words};

/// Longest time of all programs of a test.
const ALL_SECS: u64 = 300;

/// A command line, and how its output is to be compared.
struct Step {
    line: String,
    /// The order of lines means nothing.
    any_order: bool,
}

fn steps(script: &str) -> Vec<Step> {
    let lines = script.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|l| match l.strip_prefix("~ ") {
            Some(l) => Step { line: l.into(), any_order: true },
            None => Step { line: l.into(), any_order: false },
        })
        .collect()
}

/// The outputs of all steps. Programs in a row are run by one shell: a test has hundreds of them.
fn perform(e: &Env, steps: &[Step]) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = steps;
    while let Some(s) = rest.first() {
        if let Some(file) = s.line.strip_prefix("write ") {
            // `write NAME LINE;LINE...`
            let (name, lines) = file.split_once(' ').expect("name and lines");
            std::fs::write(e.path(name), lines.replace(';', "\n") + "\n").expect("a file");
            out.push(String::new());
            rest = &rest[1..];
            continue;
        }
        let n = rest.iter().position(|s| s.line.starts_with("write ")).unwrap_or(rest.len());
        let (row, later) = rest.split_at(n);
        out.extend(row.iter().zip(run_all(e, row)).map(|(s, o)| show(e, s, &o)));
        rest = later;
    }
    out
}

fn run_all(e: &Env, steps: &[Step]) -> Vec<Out> {
    let mut script = String::new();
    for (n, s) in steps.iter().enumerate() {
        let program = match s.line.split_once(' ').unwrap_or((&s.line, "")) {
            ("vsctl", rest) => format!("ovs-vsctl --timeout=15 {rest}"),
            ("ofctl", rest) => format!("ovs-ofctl --timeout=15 {rest}"),
            ("appctl", rest) => format!("ovs-appctl --timeout=15 {rest}"),
            (p, _) => panic!("unknown program {p}"),
        };
        let quoted: Vec<String> = words(&program).iter().map(|w| format!("'{}'", w.replace('\'', "'\\''"))).collect();
        script += &format!("{} >step{n}.out 2>step{n}.err; echo $? >step{n}.status\n", quoted.join(" "));
    }
    std::fs::write(e.path("steps.sh"), script).expect("a script");
    e.must_within("sh", "steps.sh", ALL_SECS);
    let read = |n: usize, what: &str| {
        let path = e.path(&format!("step{n}.{what}"));
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    };
    let one = |n| Out {
        status: read(n, "status").trim().parse().unwrap_or(-1),
        stdout: read(n, "out"),
        stderr: read(n, "err"),
    };
    (0..steps.len()).map(one).collect()
}

fn show(e: &Env, s: &Step, o: &Out) -> String {
    if s.line.starts_with("vsctl") && s.line.contains(" create ") {
        // What is printed are the new rows' names.
        return format!("status {}\n", o.status);
    }
    let out = normalise(&o.stdout);
    let out = if s.any_order { sorted(&out) } else { out };
    let dir = e.dir().display().to_string();
    let text = format!("{}{}status {}\n", out, normalise(&o.stderr), o.status).replace(&dir, "DIR");
    accepted(&text)
}

/// Takes out what `tests/differences.md` lists.
fn accepted(text: &str) -> String {
    let mut out = String::new();
    let mut tags = Vec::new();
    for line in text.lines() {
        if line.starts_with("Flow: ") {
            tags = tag_of(line);
        }
        // Row "time stamps of log lines on stderr".
        let line = match line.split_once("Z|") {
            Some((_, rest)) if line.starts_with("20") => rest.split_once('|').map_or(rest, |x| x.1),
            _ => line,
        };
        // Row "a datapath has no device of its own".
        if line == "  port 0: ovs-dummy (dummy-internal)" {
            continue;
        }
        // Row "order of flooding".
        let line = flood_in_order(line, &tags);
        // Row "traces do not send".
        let line = line.replace("dont_send=1", "dont_send=?").replace("dont_send=0", "dont_send=?");
        let line = blank_number(&line, "recirc_id=");
        // Row "priority in tunnelled tags".
        let line = if line.starts_with("Megaflow: recirc_id=0,eth,in_port=6,dl_vlan=") {
            let pcp: Vec<String> = (0..8).map(|n| format!(",dl_vlan_pcp={n}")).collect();
            pcp.iter().fold(line, |l, p| l.replace(p, ""))
        } else {
            line
        };
        // Row "normalized actions show the whole key".
        let line = match line.strip_prefix("input flow: ") {
            Some(key) => format!("input flow: {}", key[key.find("eth(").unwrap_or(0)..].to_owned()),
            None => line,
        };
        // Row "the release that is imitated".
        let line = line.replace("Software: 3.1.0", "Software: 3.7.1");
        // Row "masks of tunnelled packets".
        let line = line.replace("tun_id=0x3,tun_src=1.1.1.1,tun_dst=1.1.1.2,tun_tos=0,tun_flags=-df-csum-key,", "");
        // Row "exact labels".
        let line = line.replace("/0xfffff,", ",");
        // Row "order of creation".
        out += &blank_mac(&line);
        out.push('\n');
    }
    out
}

/// Outputs after `actions:` in the order of ports, each with the tags it is sent with; as it is if
/// there are actions other than outputs and tags. `tags` are the packet's.
fn flood_in_order(line: &str, tags: &[String]) -> String {
    for head in ["actions: ", "actions:"] {
        let Some((before, list)) = line.rsplit_once(head) else { continue };
        let mut stack = tags.to_vec();
        let mut out: Vec<(u32, String)> = Vec::new();
        for a in top_level(list) {
            if a == "pop_vlan" {
                stack.pop();
            } else if let Some(tag) = a.strip_prefix("push_vlan(") {
                stack.push(tag.trim_end_matches(')').into());
            } else if let Ok(port) = a.parse() {
                out.push((port, stack.join("+")));
            } else {
                return line.into();
            }
        }
        out.sort();
        let list: Vec<String> = out.iter().map(|(p, t)| format!("{t}>{p}")).collect();
        return format!("{before}{head}{}", list.join(" "));
    }
    line.into()
}

/// Splits at commas outside parentheses.
fn top_level(list: &str) -> Vec<&str> {
    let (mut out, mut depth, mut from) = (Vec::new(), 0, 0);
    for (n, c) in list.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                out.push(&list[from..n]);
                from = n + 1;
            }
            _ => {}
        }
    }
    out.push(&list[from..]);
    out
}

/// The tag of a `Flow:` line.
fn tag_of(line: &str) -> Vec<String> {
    let value = |name: &str| line.split(name).nth(1).and_then(|r| r.split(',').next());
    match (value(",dl_vlan="), value(",dl_vlan_pcp=")) {
        (Some(v), Some(p)) => vec![format!("vid={v},pcp={p}")],
        _ => Vec::new(),
    }
}

/// The number after `name` replaced.
fn blank_number(line: &str, name: &str) -> String {
    match line.split_once(name) {
        Some((a, b)) if name != "recirc_id=" || line.contains("userspace(") => {
            format!("{a}{name}?{}", b.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        _ => line.into(),
    }
}

/// Addresses that dummy devices get by order of creation.
fn blank_mac(line: &str) -> String {
    const PREFIX: &str = "aa:55:aa:55:00:";
    match line.find(PREFIX) {
        Some(at) if line.len() >= at + PREFIX.len() + 2 => {
            format!("{}{PREFIX}??{}", &line[..at], blank_mac(&line[at + PREFIX.len() + 2..]))
        }
        _ => line.into(),
    }
}

/// Runs the script against both daemons and shows every step that differs.
#[track_caller]
pub fn same(script: &str) {
    let reference = Env::dummy(Daemon::Reference);
    let ours = Env::dummy(Daemon::Ours);
    let mut bad = String::new();
    let steps = steps(script);
    // The two do not wait for each other.
    let (wanted, got) = std::thread::scope(|scope| {
        let wanted = scope.spawn(|| perform(&reference, &steps));
        let got = perform(&ours, &steps);
        (wanted.join().expect("the reference's outputs"), got)
    });
    for (s, (want, got)) in steps.iter().zip(wanted.into_iter().zip(got)) {
        if want != got {
            bad += &format!("### {}\n--- reference\n{want}--- ours\n{got}", s.line);
        }
    }
    assert!(bad.is_empty(), "outputs differ:\n{bad}");
}

/// Ports come one by one: the order of a table of ports depends on how it grew.
const BRIDGE: &str = "
    vsctl add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure other-config:datapath-id=fedcba9876543210 other-config:hwaddr=aa:66:aa:66:00:00 protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15
    vsctl add-port br0 p1 -- set Interface p1 type=dummy ofport_request=1
    vsctl add-port br0 p2 -- set Interface p2 type=dummy ofport_request=2
    vsctl add-port br0 p3 -- set Interface p3 type=dummy ofport_request=3
";

pub fn with_bridge(script: &str) -> String {
    format!("{BRIDGE}\n{script}")
}
