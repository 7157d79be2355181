//! How long it takes until every megaflow does what a changed rule says: from the change's being
//! visible to the end of the round that looks at them.

use std::time::Instant;

use fv_dpif::Datapath;

use crate::low;
use crate::switch::{Bench, NOW, Shape};

const ROUNDS: usize = 15;

/// A kind of change: what it is called, and the rule of round `n`.
type Change = (&'static str, fn(&mut Bench, usize));

const CHANGES: &[Change] = &[
    ("one rule's actions", |b, n| b.rule_of(Shape::Exact, 7, &format!("resubmit(,1),output:{}", 2 + n % 2))),
    ("a rule that no flow meets", |b, n| {
        b.rule(&format!("priority=200,tcp,nw_src=11.0.{}.1,actions=drop", n % 256));
        b.commit();
    }),
    ("a rule that all flows meet", |b, n| {
        b.rule(&format!("table=1,priority=1,actions=output:{}", 2 + n % 2));
        b.commit();
    }),
];

/// Flows whose program differs from what the change demands.
fn outdated(b: &Bench, all_to: Option<u32>) -> usize {
    let mut n = 0;
    b.dp.flow_dump(&mut |f| {
        let text = format!("{:?}", f.program.actions);
        n += usize::from(all_to.is_some_and(|p| !text.contains(&format!("DpPort({p})"))));
        true
    });
    n
}

pub fn run(args: &[String]) {
    let sizes: Vec<u32> = args.iter().filter_map(|a| a.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![10_000, 200_000] } else { sizes };
    let mut line = String::from("RESULT");
    for flows in sizes {
        let mut b = Bench::new();
        b.rules(Shape::Exact, flows, "resubmit(,1)");
        b.rule("table=1,priority=1,actions=output:2");
        b.commit();
        b.flows(Shape::Exact, flows);
        assert_eq!(b.dp.flow_count(), flows as usize);
        b.slowpath.round(NOW, &|| NOW);
        for (what, change) in CHANGES {
            let (mut ms, mut publish) = (Vec::new(), Vec::new());
            for n in 0..ROUNDS {
                let start = Instant::now();
                change(&mut b, n);
                publish.push(start.elapsed().as_secs_f64() * 1e3);
                let start = Instant::now();
                b.slowpath.round(NOW, &|| NOW);
                ms.push(start.elapsed().as_secs_f64() * 1e3);
                let all_to = what.contains("all").then_some(2 + n as u32 % 2);
                assert_eq!((outdated(&b, all_to), b.dp.flow_count()), (0, flows as usize), "{what}");
            }
            let (publish, ms) = (low(&publish), low(&ms));
            println!("{flows:8} megaflows, {what:28} {publish:8.2} ms to publish, {ms:8.2} ms to revalidate");
            line += &format!(" {}_{flows}_ms={ms:.2}", what.split(' ').nth(3).unwrap_or("one").replace(' ', "_"));
        }
    }
    println!("{line}");
}
