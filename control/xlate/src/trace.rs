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
    Table,
    Thaw,
    Action,
    Bucket,
    Done,
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

    /// How many nodes are open; `leave_to` closes down to such a number.
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    pub fn leave_to(&mut self, depth: usize) {
        while self.open.len() > depth {
            self.leave();
        }
    }

    pub fn finish(mut self) -> Vec<Node> {
        self.leave_to(0);
        self.done
    }

    fn siblings(&mut self) -> &mut Vec<Node> {
        match self.open.last_mut() {
            Some(n) => &mut n.children,
            None => &mut self.done,
        }
    }
}

/// The text of `ofproto/trace`: what is under the last node of a list stays at its level, so that
/// a chain of tables does not drift to the right.
pub fn format(nodes: &[Node], level: usize, out: &mut String) {
    for (i, n) in nodes.iter().enumerate() {
        let indent = if n.kind == Kind::Bridge { 0 } else { level };
        let pad = |out: &mut String, extra: usize| out.extend(std::iter::repeat_n(' ', indent * 4 + extra));
        match n.kind {
            Kind::Detail => {
                pad(out, 0);
                out.push_str(" -> ");
            }
            Kind::Warn => {
                pad(out, 0);
                out.push_str(" >> ");
            }
            Kind::Error => {
                pad(out, 0);
                out.push_str(" >>>> ");
            }
            Kind::Bridge => out.push('\n'),
            Kind::Table | Kind::Thaw => pad(out, 0),
            Kind::Bucket | Kind::Action | Kind::Done => pad(out, 0),
        }
        out.push_str(&n.text);
        match n.kind {
            Kind::Error => out.push_str(" <<<<\n"),
            Kind::Bridge => {
                out.push('\n');
                out.extend(std::iter::repeat_n('-', n.text.len()));
                out.push('\n');
            }
            Kind::Bucket => out.push('\n'),
            _ => out.push('\n'),
        }
        if !n.children.is_empty() {
            let last = i + 1 == nodes.len();
            let next = match n.kind {
                Kind::Bridge => level,
                _ if last && matches!(n.kind, Kind::Action) => level,
                Kind::Table | Kind::Thaw => level + 1,
                _ => level + 1,
            };
            format(&n.children, next, out);
        }
    }
}
