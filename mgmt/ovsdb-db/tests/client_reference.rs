//! The replica against the reference's server.

mod support;

use fv_ovsdb::mutation::Mutator;
use fv_ovsdb::{Datum, vswitch};
use fv_ovsdb_db::client::{Client, Config, Outcome, TxnBuilder};
use std::path::PathBuf;
use support::{Conn, ReferenceServer, tool_ok, wait_for};

struct Peer {
    client: Client,
    conn: Conn,
}

impl Peer {
    fn new(config: Config, server: &ReferenceServer) -> Peer {
        let mut p = Peer { client: Client::new(config), conn: Conn::open(&server.socket) };
        p.client.connected();
        p
    }

    fn reconnect(&mut self, server: &ReferenceServer) {
        self.client.disconnected();
        self.conn = Conn::open(&server.socket);
        self.client.connected();
    }

    fn turn(&mut self) {
        for m in self.client.take_outgoing() {
            self.conn.send(&m);
        }
        for m in self.conn.receive() {
            self.client.handle(m).unwrap();
        }
    }

    fn until(&mut self, what: &str, mut f: impl FnMut(&mut Client) -> bool) {
        wait_for(what, || {
            self.turn();
            f(&mut self.client).then_some(())
        });
    }

    fn commit(&mut self, t: TxnBuilder) -> Outcome {
        let id = self.client.commit(t);
        wait_for("an outcome", || {
            self.turn();
            self.client.outcome(id)
        })
    }
}

fn database(dir: &tempfile::TempDir) -> PathBuf {
    let db = dir.path().join("conf.db");
    let schema = dir.path().join("s.ovsschema");
    std::fs::write(&schema, vswitch::VSWITCH_SCHEMA).unwrap();
    tool_ok("ovsdb-tool", &["create", db.to_str().unwrap(), schema.to_str().unwrap()]);
    db
}

#[test]
fn replica_follows_writes_and_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let db = database(&dir);
    let mut server = ReferenceServer::start(dir.path(), &db);
    let remote = format!("--db=unix:{}", server.socket.display());
    let vsctl = |args: &[&str]| tool_ok("ovs-vsctl", &[&[remote.as_str(), "--no-wait", "--timeout=10"], args].concat());

    let mut p = Peer::new(Config { lock: Some("ovs_vswitchd".into()), ..Config::vswitch() }, &server);
    p.until("sync and lock", |c| c.is_synced() && c.has_lock());
    assert!(p.client.changed());
    assert!(!p.client.changed());

    vsctl(&["init", "--", "add-br", "br0", "--", "set", "bridge", "br0", "other_config:a=b", "fail_mode=secure"]);
    vsctl(&["add-port", "br0", "p1", "tag=7", "--", "set", "interface", "p1", "type=dummy", "options:x=y"]);
    p.until("the port", |c| c.rows("Port").any(|r| r.str("name") == "p1"));
    let br = p.client.rows("Bridge").next().unwrap();
    assert_eq!((br.str("name"), br.str("fail_mode"), br.lookup("other_config", "a")), ("br0", "secure", Some("b")));
    assert_eq!(br.uuids("ports").count(), 2);
    let port = p.client.rows("Port").find(|r| r.str("name") == "p1").unwrap();
    assert_eq!(port.i64_opt("tag"), Some(7));
    let iface = p.client.row("Interface", port.uuids("interfaces").next().unwrap()).unwrap();
    assert_eq!(iface.map("options").collect::<Vec<_>>(), [("x", "y")]);
    assert!(!iface.has_column("no_such") && iface.str("no_such").is_empty());

    // A map that changes by differences.
    vsctl(&["set", "bridge", "br0", "other_config:a=c", "other_config:d=e", "--", "del-port", "p1"]);
    p.until("the changed map", |c| {
        let br = c.first("Bridge").unwrap();
        br.map("other_config").collect::<Vec<_>>() == [("a", "c"), ("d", "e")] && c.row_count("Interface") == 1
    });

    // Status is replicated, but is no news; configuration is, even with it.
    p.client.changed();
    vsctl(&["set", "bridge", "br0", "datapath_version=x"]);
    p.until("the status", |c| c.first("Bridge").unwrap().str("datapath_version") == "x");
    assert!(!p.client.changed());
    vsctl(&["set", "bridge", "br0", "datapath_version=y", "stp_enable=true"]);
    p.until("both", |c| c.first("Bridge").unwrap().bool("stp_enable"));
    assert!(p.client.changed() && p.client.first("Bridge").unwrap().str("datapath_version") == "y");

    // Writes of ours, with the lock asserted.
    let ovs = p.client.first("Open_vSwitch").unwrap().uuid();
    let br = p.client.first("Bridge").unwrap().uuid();
    let mut t = p.client.txn();
    t.update("Open_vSwitch", ovs, vec![("cur_cfg", Datum::integer(5).into()), ("no_such", Datum::integer(1).into())]);
    t.update("Bridge", br, vec![("datapath_id", Datum::string("00aa").into())]);
    t.mutate("Bridge", br, "external_ids", Mutator::Insert, Datum::string_map([("k", "v")]));
    t.comment("test");
    assert!(p.commit(t).is_success());
    p.until("our own write", |c| c.first("Open_vSwitch").unwrap().i64("cur_cfg") == 5);
    assert_eq!(vsctl(&["get", "bridge", "br0", "datapath_id", "external_ids:k"]), "\"00aa\"\nv\n");
    assert_eq!(p.client.first("Bridge").unwrap().lookup("external_ids", "k"), Some("v"));

    let mut t = p.client.txn();
    t.verify("Open_vSwitch", ovs, "cur_cfg", &Datum::integer(4));
    t.update("Open_vSwitch", ovs, vec![("cur_cfg", Datum::integer(6).into())]);
    assert_eq!(p.commit(t), Outcome::TryAgain);
    let mut t = p.client.txn();
    t.update("Bridge", br, vec![("ports", Datum::uuids([ovs]).into())]);
    let refused = p.commit(t);
    assert!(matches!(&refused, Outcome::Error(e) if e.contains("referential integrity")), "{refused:?}");
    let t = p.client.txn();
    assert_eq!(p.commit(t), Outcome::Unchanged);
    let mut t = p.client.txn();
    let manager = t.insert("Manager", vec![("target", Datum::string("ptcp:0").into())]);
    t.update("Open_vSwitch", ovs, vec![("manager_options", manager.into())]);
    assert!(matches!(p.commit(t), Outcome::Success { inserted } if inserted.len() == 1));

    // The server dies; rows stay readable; after the restart the replica is complete again.
    server.kill();
    wait_for("the end of the connection", || {
        p.conn.receive();
        p.conn.closed.then_some(())
    });
    p.client.disconnected();
    assert!(!p.client.has_lock() && p.client.row_count("Bridge") == 1);
    let mut t = p.client.txn();
    t.delete("Bridge", br);
    let id = p.client.commit(t);
    assert_eq!(p.client.outcome(id), Some(Outcome::TryAgain));
    let server = ReferenceServer::start(dir.path(), &db);
    p.reconnect(&server);
    p.until("resynchronisation", |c| c.is_synced() && c.has_lock());
    assert_eq!(p.client.first("Bridge").unwrap().str("datapath_id"), "", "an ephemeral column is gone");
    assert_eq!(p.client.row_count("Manager"), 1);
}

#[test]
fn one_lock_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let db = database(&dir);
    let server = ReferenceServer::start(dir.path(), &db);
    let config =
        Config { lock: Some("l".into()), tables: vec![("Bridge".into(), vec!["name".into()])], ..Config::vswitch() };
    let mut a = Peer::new(config.clone(), &server);
    a.until("a's lock", |c| c.is_synced() && c.has_lock());
    let mut b = Peer::new(config, &server);
    b.until("b's refusal", |c| c.is_synced() && c.is_lock_contended());
    let mut t = b.client.txn();
    t.insert("Bridge", vec![("name", Datum::string("x").into())]);
    assert_eq!(b.commit(t), Outcome::NotLocked);
    a.client.set_lock(None);
    a.turn();
    b.until("b's lock", |c| c.has_lock() && c.changed());
    assert_eq!(a.client.row_count("Port"), 0);
}
