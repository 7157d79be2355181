//! Compares `layers.toml` with the crate graph that cargo sees.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;

/// Crate name -> names of our crates that it depends on (build and normal dependencies).
pub type Graph = BTreeMap<String, BTreeSet<String>>;

#[derive(Deserialize)]
pub struct Layers {
    edges: Graph,
    never: Vec<Never>,
}

#[derive(Deserialize)]
struct Never {
    why: String,
    from: Vec<String>,
    to: Vec<String>,
}

impl Layers {
    pub fn load(text: &str) -> Result<Layers> {
        toml::from_str(text).context("layers.toml")
    }

    /// Every way in which the graph breaks the rules, in words.
    pub fn violations(&self, graph: &Graph) -> Vec<String> {
        let mut out = Vec::new();
        for (from, deps) in graph {
            match self.edges.get(from) {
                None => out.push(format!("{from} is not in layers.toml")),
                Some(allowed) => {
                    out.extend(deps.difference(allowed).map(|to| format!("{from} -> {to} is not an allowed edge")));
                }
            }
        }
        out.extend(
            self.edges
                .keys()
                .filter(|k| !graph.contains_key(*k))
                .map(|k| format!("{k} is in layers.toml but not in the workspace")),
        );
        for n in &self.never {
            for from in &n.from {
                let reach = reachable(graph, from);
                out.extend(
                    n.to.iter().filter(|to| reach.contains(*to)).map(|to| format!("{from} reaches {to}: {}", n.why)),
                );
            }
        }
        out
    }
}

fn reachable(graph: &Graph, from: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![from.to_string()];
    while let Some(x) = todo.pop() {
        for d in graph.get(&x).into_iter().flatten() {
            if seen.insert(d.clone()) {
                todo.push(d.clone());
            }
        }
    }
    seen
}

/// The graph of this workspace, from `cargo metadata`.
pub fn workspace_graph() -> Result<Graph> {
    let m = cargo_metadata::MetadataCommand::new().no_deps().exec().context("cargo metadata")?;
    let ours: BTreeSet<String> = m.packages.iter().map(|p| p.name.to_string()).collect();
    Ok(m.packages
        .iter()
        .map(|p| {
            let deps = p
                .dependencies
                .iter()
                .filter(|d| d.kind != cargo_metadata::DependencyKind::Development && ours.contains(&d.name))
                .map(|d| d.name.clone())
                .collect();
            (p.name.to_string(), deps)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        edges.iter().map(|(f, t)| (f.to_string(), t.iter().map(|s| s.to_string()).collect())).collect()
    }

    #[test]
    fn this_workspace_keeps_its_layers() {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../layers.toml")).unwrap();
        let bad = Layers::load(&text).unwrap().violations(&workspace_graph().unwrap());
        assert!(bad.is_empty(), "{bad:#?}");
    }

    #[test]
    fn a_forbidden_edge_is_found_through_others() {
        let rules = Layers::load(
            "[edges]\na = [\"b\"]\nb = [\"c\"]\nc = []\n[[never]]\nwhy = \"w\"\nfrom = [\"a\"]\nto = [\"c\"]\n",
        )
        .unwrap();
        let bad = rules.violations(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &[])]));
        assert_eq!(bad, ["a reaches c: w"]);
        let bad = rules.violations(&graph(&[("a", &["c"]), ("b", &[]), ("c", &[]), ("d", &[])]));
        assert_eq!(bad, ["a -> c is not an allowed edge", "d is not in layers.toml", "a reaches c: w"]);
    }
}
