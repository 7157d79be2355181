//! Flow-mods in any order against a list that is searched from end to end.

use fv_flow::Match;
use fv_openflow::msg::flow::{FlowMod, FlowModCommand as Command, FlowModFlags as Flags};
use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Flow {
    table: u8,
    priority: u16,
    m: usize,
    cookie: u64,
    port: u32,
    packets: u64,
}

/// From all packets to one port's with one address: later ones are within earlier ones, or apart.
fn matches() -> [Match; 5] {
    let mut both = on_port(1);
    both.set_dl_src([2; 6]);
    let mut other = on_port(1);
    other.set_dl_src([4; 6]);
    [Match::default(), on_port(1), on_port(2), both, other]
}

fn within(specific: usize, general: usize) -> bool {
    general == 0 || specific == general || general == 1 && specific >= 3
}

/// Whether some packet is in both.
fn overlap(a: usize, b: usize) -> bool {
    within(a, b) || within(b, a)
}

fn twin(flows: &mut Vec<Flow>, fm: &FlowMod, m: usize, port: u32) -> Result<(), OfError> {
    let strict = fm.command.is_strict();
    let selected = |f: &Flow| {
        (fm.table == 0xff || f.table == fm.table)
            && (f.cookie ^ fm.cookie) & fm.cookie_mask == 0
            && if strict { f.m == m && f.priority == fm.priority } else { within(f.m, m) }
    };
    let table = if fm.table == 0xff { 0 } else { fm.table };
    let add = |flows: &mut Vec<Flow>| {
        let same = |f: &Flow| f.table == table && f.m == m && f.priority == fm.priority;
        let old = flows.iter().find(|f| same(f)).copied();
        if old.is_none() && fm.flags.has(Flags::CHECK_OVERLAP) {
            let clash = |f: &Flow| f.table == table && f.priority == fm.priority && overlap(f.m, m);
            if flows.iter().any(clash) {
                return Err(OfError::FmfcOverlap);
            }
        }
        let keeps = old.filter(|_| !fm.flags.has(Flags::RESET_COUNTS));
        flows.retain(|f| !same(f));
        let packets = keeps.map_or(0, |o| o.packets);
        flows.push(Flow { table, priority: fm.priority, m, cookie: fm.new_cookie, port, packets });
        Ok(())
    };
    match fm.command {
        Command::Add => return add(flows),
        Command::Delete | Command::DeleteStrict => {
            flows.retain(|f| !(selected(f) && (fm.out_port == OfPort::NONE || fm.out_port == OfPort(f.port))));
        }
        Command::Modify | Command::ModifyStrict => {
            if !flows.iter().any(selected) {
                return if fm.cookie_mask == 0 { add(flows) } else { Ok(()) };
            }
            for f in flows.iter_mut().filter(|f| selected(f)) {
                f.port = port;
                if fm.modify_cookie {
                    f.cookie = fm.new_cookie;
                }
                if fm.flags.has(Flags::RESET_COUNTS) {
                    f.packets = 0;
                }
            }
        }
    }
    Ok(())
}

fn actual(o: &Ofproto) -> Vec<Flow> {
    let all = matches();
    let v = o.tables().version();
    let mut flows: Vec<Flow> = o
        .tables()
        .visible()
        .flat_map(|(_, t)| t.cls.rules(v))
        .map(|r| Flow {
            table: r.table,
            priority: r.priority() as u16,
            m: all.iter().position(|m| *m == r.matches().expand()).unwrap(),
            cookie: r.cookie,
            port: match r.actions[0] {
                fv_openflow::Action::Output { port, .. } => port.0,
                _ => 0,
            },
            packets: r.stats.packets(),
        })
        .collect();
    flows.sort();
    flows
}

fn any_mod() -> impl Strategy<Value = (FlowMod, usize, u32)> {
    let command = prop::sample::select(vec![
        Command::Add,
        Command::Add,
        Command::Modify,
        Command::ModifyStrict,
        Command::Delete,
        Command::DeleteStrict,
    ]);
    let flags = prop::sample::select(vec![Flags::default(), Flags::RESET_COUNTS, Flags::CHECK_OVERLAP]);
    let cookies = (0u64..3, prop::sample::select(vec![0u64, 0, 3]), 0u64..3, any::<bool>());
    let table = prop::sample::select(vec![0u8, 1, 0xff]);
    let out = prop::sample::select(vec![OfPort::NONE, OfPort::NONE, OfPort(1)]);
    (command, 0usize..5, 0u16..2, cookies, flags, table, 1u32..3, out).prop_map(
        |(command, m, priority, (cookie, cookie_mask, new_cookie, modify_cookie), flags, table, port, out_port)| {
            let fm = FlowMod {
                command,
                match_: matches()[m],
                priority,
                cookie,
                cookie_mask,
                new_cookie,
                modify_cookie,
                table,
                flags,
                out_port,
                actions: output(port),
                ..FlowMod::default()
            };
            (fm, m, port)
        },
    )
}

proptest! {
    /// One by one, and as bundles that fail as a whole.
    #[test]
    fn flow_mods_equal_the_twin(
        mods in prop::collection::vec(any_mod(), 1..40),
        bundle in 1usize..4,
    ) {
        let mut o = bridge(true);
        let mut host = FakeHost::default();
        let mut list: Vec<Flow> = Vec::new();
        for group in mods.chunks(bundle) {
            let before = list.clone();
            let mut want = Ok(());
            for (i, (fm, m, port)) in group.iter().enumerate() {
                if let Err(e) = twin(&mut list, fm, *m, *port) {
                    want = Err((i, e));
                    list = before;
                    break;
                }
            }
            let only: Vec<FlowMod> = group.iter().map(|g| g.0.clone()).collect();
            prop_assert_eq!(o.flow_mods(at(1), &only), want);
            o.turn(at(1), 10, &mut host);
            list.sort();
            prop_assert_eq!(actual(&o), &list[..]);
            // Every flow forwards a packet now and then.
            for r in o.all_rules() {
                r.credit(1, 60, at(1), 0);
            }
            list.iter_mut().for_each(|f| f.packets += 1);
        }
    }
}
