//! The account that translation gives of itself for `ofproto/trace`: a tree of what was looked up,
//! done and decided. Building it costs allocations, so it exists only when asked for.

/// What a node of the account is; decides how it is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Something learnt on the way ("no learned MAC for destination, flooding").
    Detail,
    /// Unusual, but not wrong.
    Warn,
    /// Translation stopped here.
    Error,
    Bridge,
    /// A table's rule, the thawing of a frozen state, the action set.
    Table,
    Action,
    Bucket,
}

impl Kind {
    /// Whether it is a step of a list, rather than the head of one.
    fn is_step(self) -> bool {
        !matches!(self, Kind::Bridge | Kind::Table)
    }
}

#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    pub text: String,
    pub children: Vec<Node>,
}

/// Collects nodes; `enter` and `leave` bracket what belongs under a node.
#[derive(Default, Debug)]
pub struct Tracer {
    done: Vec<Node>,
    open: Vec<Node>,
}

impl Tracer {
    pub fn leaf(&mut self, kind: Kind, text: String) {
        let node = Node { kind, text, children: Vec::new() };
        self.siblings().push(node);
    }

    pub fn enter(&mut self, kind: Kind, text: String) {
        self.open.push(Node { kind, text, children: Vec::new() });
    }

    pub fn leave(&mut self) {
        if let Some(n) = self.open.pop() {
            self.siblings().push(n);
        }
    }

    pub fn finish(mut self) -> Vec<Node> {
        while !self.open.is_empty() {
            self.leave();
        }
        self.done
    }

    fn siblings(&mut self) -> &mut Vec<Node> {
        match self.open.last_mut() {
            Some(n) => &mut n.children,
            None => &mut self.done,
        }
    }
}

/// The text of `ofproto/trace`. What is under the last action of a list stays at that list's level,
/// so that a chain of tables does not drift to the right.
pub fn format(nodes: &[Node]) -> String {
    let mut out = String::new();
    lines(nodes, 0, false, &mut out);
    out
}

/// `level` counts steps of four spaces; `after` tells that something follows these nodes at the same
/// level. What an action leads to is told in line with it.
fn lines(nodes: &[Node], level: usize, after: bool, out: &mut String) {
    for (i, n) in nodes.iter().enumerate() {
        let more = i + 1 < nodes.len() || after;
        let own = if n.kind.is_step() { level + 1 } else { level + usize::from(more) };
        match n.kind {
            Kind::Detail => put(out, own, " -> ", &n.text, ""),
            Kind::Warn => put(out, own, " >> ", &n.text, ""),
            Kind::Error => put(out, own, " >>>> ", &n.text, " <<<<"),
            Kind::Action | Kind::Table | Kind::Bucket => put(out, own, "", &n.text, ""),
            Kind::Bridge => {
                out.push('\n');
                put(out, own, "", &n.text, "");
                put(out, own, "", &"-".repeat(n.text.len()), "");
            }
        }
        match n.kind {
            Kind::Bucket => lines(&n.children, level + 2, false, out),
            k if k.is_step() => lines(&n.children, level, more, out),
            _ => lines(&n.children, level + 2 * usize::from(more), false, out),
        }
    }
}

fn put(out: &mut String, level: usize, before: &str, text: &str, after: &str) {
    out.extend(std::iter::repeat_n(' ', level * 4));
    out.push_str(before);
    out.push_str(text);
    out.push_str(after);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let mut t = Tracer::default();
        t.enter(Kind::Bridge, "bridge(\"br0\")".into());
        t.enter(Kind::Table, " 0. priority 1".into());
        t.enter(Kind::Action, "resubmit(,1)".into());
        t.enter(Kind::Table, " 1. priority 2".into());
        t.enter(Kind::Action, "ALL".into());
        t.enter(Kind::Bridge, "bridge(\"br1\")".into());
        t.enter(Kind::Table, " 0. priority 0".into());
        t.enter(Kind::Action, "NORMAL".into());
        t.leaf(Kind::Detail, "flooding".into());
        for _ in 0..4 {
            t.leave();
        }
        t.enter(Kind::Action, "goto_table:2".into());
        t.enter(Kind::Table, " 2. priority 3".into());
        t.leaf(Kind::Action, "drop".into());
        for _ in 0..4 {
            t.leave();
        }
        t.leaf(Kind::Action, "output:3".into());
        let want = "\nbridge(\"br0\")\n-------------\n 0. priority 1\n    resubmit(,1)\n     1. priority 2\n            ALL\n\n            \
                    bridge(\"br1\")\n            -------------\n                 0. priority 0\n                    NORMAL\n                     \
                    -> flooding\n            goto_table:2\n         2. priority 3\n            drop\n    output:3\n";
        assert_eq!(format(&t.finish()), want);
    }

    #[test]
    fn an_error_right_below_a_bridge() {
        let mut t = Tracer::default();
        t.enter(Kind::Table, " 0. priority 1".into());
        t.enter(Kind::Action, "output:9".into());
        t.enter(Kind::Bridge, "bridge(\"br1\")".into());
        t.leaf(Kind::Error, "too deep".into());
        t.leave();
        t.leave();
        t.leaf(Kind::Action, "output:3".into());
        let want = " 0. priority 1\n    output:9\n\n    bridge(\"br1\")\n    -------------\n             \
                    >>>> too deep <<<<\n    output:3\n";
        assert_eq!(format(&t.finish()), want);
    }

    /// The last action of a clone is followed by what follows the clone.
    #[test]
    fn a_table_below_a_clone() {
        let mut t = Tracer::default();
        t.enter(Kind::Table, " 0. priority 1".into());
        t.enter(Kind::Action, "clone(resubmit(,3))".into());
        t.enter(Kind::Action, "resubmit(,3)".into());
        t.enter(Kind::Table, " 3. priority 2".into());
        t.enter(Kind::Action, "resubmit(,4)".into());
        t.enter(Kind::Table, " 4. priority 3".into());
        t.leaf(Kind::Action, "drop".into());
        for _ in 0..5 {
            t.leave();
        }
        t.leaf(Kind::Action, "output:3".into());
        let want = " 0. priority 1\n    clone(resubmit(,3))\n    resubmit(,3)\n     3. priority 2\n            \
                    resubmit(,4)\n         4. priority 3\n            drop\n    output:3\n";
        assert_eq!(format(&t.finish()), want);
    }
}
