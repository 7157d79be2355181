//! Control commands of a served database, under the names that scripts use.

use super::ServerDriver;
use fv_core::Command;

/// To be registered where the driver is the context.
pub const COMMANDS: &[Command<ServerDriver>] = &[
    Command {
        name: "ovsdb-server/add-remote",
        usage: Some("REMOTE"),
        min: 1,
        max: 1,
        run: |d, args| {
            let now = d.last_turn();
            // Kept and tried again, as a remote of the database would be.
            if let Err(e) = d.add_remote(args[0], now) {
                log::warn!(target: "ovsdb_jsonrpc_server", "{e}");
            }
            Ok(String::new())
        },
    },
    Command {
        name: "ovsdb-server/remove-remote",
        usage: Some("REMOTE"),
        min: 1,
        max: 1,
        run: |d, args| if d.remove_remote(args[0]) { Ok(String::new()) } else { Err("no such remote".into()) },
    },
    Command {
        name: "ovsdb-server/list-remotes",
        usage: Some(""),
        min: 0,
        max: 0,
        run: |d, _| Ok(d.remotes().map(|r| format!("{r}\n")).collect()),
    },
    Command {
        name: "ovsdb-server/list-dbs",
        usage: Some(""),
        min: 0,
        max: 0,
        run: |d, _| {
            let mut names: Vec<String> = d.server().database_names().map(|n| format!("{n}\n")).collect();
            names.sort();
            Ok(names.concat())
        },
    },
    Command {
        name: "ovsdb-server/compact",
        usage: Some(""),
        min: 0,
        max: 1,
        run: |d, args| {
            let name = args.first().copied();
            if name.is_some_and(|n| n.starts_with('_')) {
                return Err("cannot compact built-in databases".into());
            }
            let now = d.last_now();
            d.server_mut().compact(name, now).map(|()| String::new())
        },
    },
    Command {
        name: "ovsdb-server/reconnect",
        usage: Some(""),
        min: 0,
        max: 0,
        run: |d, _| {
            d.reconnect();
            Ok(String::new())
        },
    },
    Command {
        name: "ovsdb-server/sync-status",
        usage: Some(""),
        min: 0,
        max: 0,
        run: |_, _| Ok("state: active\n".into()),
    },
    Command {
        name: "ovsdb-server/get-db-storage-status",
        usage: Some("DB"),
        min: 1,
        max: 1,
        run: |d, args| match d.server().database(args[0]) {
            Some(_) => Ok("status: ok\n".into()),
            None => Err("no database by that name".into()),
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Now, Server};
    use fv_core::{Nanos, Registry};
    use fv_ovsdb::{Database, vswitch};

    #[test]
    fn commands_answer_as_the_references() {
        let server = Server::new(vec![(Database::new(vswitch::vswitch_schema()), None)]);
        let mut d = ServerDriver::new(server, fv_rpc::Tls::default());
        d.turn(Now { mono: Nanos::from_secs(10), wall: Nanos::from_secs(10) });
        let mut r = Registry::default();
        r.add(COMMANDS);
        let mut run = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            r.run(&mut d, &format!("ovsdb-server/{}", words[0]), &words[1..])
        };
        assert_eq!(run("list-dbs"), Ok("Open_vSwitch\n_Server\n".into()));
        assert_eq!(run("list-remotes"), Ok(String::new()));
        assert_eq!(run("add-remote ptcp:0:127.0.0.1"), Ok(String::new()));
        assert_eq!(run("list-remotes"), Ok("ptcp:0:127.0.0.1\n".into()));
        assert_eq!(run("remove-remote ptcp:0:127.0.0.1"), Ok(String::new()));
        assert_eq!(run("remove-remote ptcp:0:127.0.0.1"), Err("no such remote".into()));
        assert_eq!(run("compact _Server"), Err("cannot compact built-in databases".into()));
        assert_eq!(run("compact nope"), Err("no database by that name".into()));
        assert_eq!(run("compact"), Ok(String::new()));
        assert_eq!(run("reconnect"), Ok(String::new()));
    }
}
