//! Control commands as data: a library offers a table of commands, the application registers and
//! dispatches them, the control socket and the help text are derived from the same table.

use std::collections::BTreeMap;

/// What a command answers at once.
pub type Reply = Result<String, String>;

/// One command of the control socket. `C` is what it works on.
#[derive(Clone, Copy)]
pub struct Command<C> {
    /// Full name, e.g. `fdb/show`.
    pub name: &'static str,
    /// Arguments as shown by `list-commands`; None hides the command from it.
    pub usage: Option<&'static str>,
    pub min: usize,
    /// `usize::MAX` for any number.
    pub max: usize,
    /// `Err` becomes the protocol's error with that text.
    pub run: fn(&mut C, &[&str]) -> Reply,
}

/// Commands by name, over one context type.
pub struct Registry<C> {
    commands: BTreeMap<&'static str, Command<C>>,
}

impl<C> Default for Registry<C> {
    fn default() -> Self {
        Registry { commands: BTreeMap::new() }
    }
}

impl<C> Registry<C> {
    /// Adds commands. A name that is there already is a bug of the caller.
    pub fn add(&mut self, commands: &[Command<C>]) {
        for c in commands {
            let old = self.commands.insert(c.name, Command { ..*c });
            assert!(old.is_none(), "command {} registered twice", c.name);
        }
    }

    /// The command, after the check of name and number of arguments that the protocol demands.
    pub fn find(&self, name: &str, n_args: usize) -> Result<fn(&mut C, &[&str]) -> Reply, String> {
        let Some(c) = self.commands.get(name) else {
            return Err(format!(
                "\"{name}\" is not a valid command (use \"list-commands\" to see a list of valid commands)"
            ));
        };
        if n_args < c.min {
            return Err(format!("\"{name}\" command requires at least {} arguments", c.min));
        }
        if n_args > c.max {
            return Err(format!("\"{name}\" command takes at most {} arguments", c.max));
        }
        Ok(c.run)
    }

    /// Checks and runs.
    pub fn run(&self, ctx: &mut C, name: &str, args: &[&str]) -> Reply {
        self.find(name, args.len())?(ctx, args)
    }

    /// (name, usage) of the commands that are not hidden, sorted by name.
    pub fn list(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.commands.values().filter_map(|c| c.usage.map(|u| (c.name, u)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_counted_before_the_call() {
        let mut r = Registry::default();
        r.add(&[Command {
            name: "a/b",
            usage: Some("x"),
            min: 1,
            max: 1,
            run: |n: &mut u32, _| {
                *n += 1;
                Ok(String::new())
            },
        }]);
        let mut n = 0;
        assert!(r.run(&mut n, "a/b", &[]).unwrap_err().contains("requires at least 1"));
        assert!(r.run(&mut n, "a/b", &["1", "2"]).unwrap_err().contains("at most 1"));
        assert!(r.run(&mut n, "zz", &[]).unwrap_err().contains("not a valid command"));
        assert_eq!(n, 0);
        r.run(&mut n, "a/b", &["1"]).unwrap();
        assert_eq!(n, 1);
    }
}
