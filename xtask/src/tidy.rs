//! Rules on the tree that no compiler checks.

use std::path::Path;

use anyhow::{Result, bail};

/// A source file longer than this must be split by concept.
const MAX_LINES: usize = 1000;

pub fn check() -> Result<()> {
    let mut bad = Vec::new();
    walk(&crate::ci::root(), &mut |path, text| bad.extend(file(path, text)))?;
    if !bad.is_empty() {
        bail!("{}", bad.join("\n"));
    }
    Ok(())
}

/// What is wrong with one Rust file.
fn file(path: &Path, text: &str) -> Vec<String> {
    let mut bad = Vec::new();
    let at = |n: usize, what: &str| format!("{}:{}: {what}", path.display(), n + 1);
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > MAX_LINES {
        bad.push(at(lines.len() - 1, &format!("{} lines; split it (limit {MAX_LINES})", lines.len())));
    }
    for (n, l) in lines.iter().enumerate() {
        let code = l.split("//").next().unwrap_or("");
        for word in ["todo!(", "unimplemented!(", "#[ignore"] {
            if code.contains(word) && !code.contains(&format!("\"{word}")) {
                bad.push(at(n, &format!("{word} left in the code")));
            }
        }
        let opens_unsafe = (code.contains("unsafe {") || code.contains("unsafe impl")) && !code.contains('"');
        let above = &lines[n.saturating_sub(5)..=n];
        if opens_unsafe && !above.iter().any(|a| a.contains("SAFETY")) {
            bad.push(at(n, "unsafe without a SAFETY line above it"));
        }
    }
    bad
}

fn walk(dir: &Path, f: &mut impl FnMut(&Path, &str)) -> Result<()> {
    for e in std::fs::read_dir(dir)? {
        let path = e?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                walk(&path, f)?;
            }
        } else if name.ends_with(".rs") {
            f(&path, &std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_it_should() {
        let p = Path::new("x.rs");
        assert!(file(p, "fn a() {}\n").is_empty());
        assert_eq!(file(p, concat!("fn a() { to", "do!() }\n")).len(), 1);
        assert_eq!(file(p, "fn a() { unsafe { b() } }\n").len(), 1);
        assert!(file(p, "// SAFETY: b has no preconditions\nlet x = unsafe { b() };\n").is_empty());
        assert_eq!(file(p, &"\n".repeat(MAX_LINES + 1)).len(), 1);
    }
}
