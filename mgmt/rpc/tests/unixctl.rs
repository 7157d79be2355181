//! The control socket with the reference's own client and with ours.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use fv_core::{Clock, Nanos, Registry, Reply};
use fv_rpc::Poller;
use fv_rpc::unixctl::{self, ConnToken, Server};
use serde_json::{Value, json};

/// A served socket; commands: `echo ARGS`, `fail`, `later` (answered by the next `now`), `now`.
struct Served {
    dir: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    waker: fv_rpc::Waker,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Ctx {
    release: bool,
}

fn registry() -> Registry<Ctx> {
    let mut r = Registry::default();
    r.add(&[
        fv_core::Command { name: "echo", usage: Some("ARGS..."), min: 1, max: 3, run: |_, args| Ok(args.join(" ")) },
        fv_core::Command { name: "fail", usage: Some(""), min: 0, max: 0, run: |_, _| Err("it failed".into()) },
        fv_core::Command {
            name: "now",
            usage: None,
            min: 0,
            max: 0,
            run: |c: &mut Ctx, _| {
                c.release = true;
                Ok(String::new())
            },
        },
    ]);
    r
}

fn serve(mut server: Server, mut poller: Poller, stop: Arc<AtomicBool>, later: Arc<Mutex<usize>>) {
    let clock = Clock::new();
    let commands = registry();
    let mut ctx = Ctx::default();
    let mut waiting: Vec<ConnToken> = Vec::new();
    while !stop.load(Ordering::Acquire) {
        for r in server.turn(clock.now()) {
            let args: Vec<&str> = r.args.iter().map(String::as_str).collect();
            let reply: Reply = match r.command.as_str() {
                "list-commands" => Ok(unixctl::command_list(commands.list())),
                "later" => {
                    waiting.push(r.token);
                    *later.lock().unwrap() = waiting.len();
                    continue;
                }
                c => commands.run(&mut ctx, c, &args),
            };
            server.reply(r.token, reply);
            if std::mem::take(&mut ctx.release) {
                waiting.drain(..).for_each(|t| server.reply(t, Ok("at last".into())));
            }
        }
        server.want(&mut poller, clock.now());
        poller.wait(None, &clock).unwrap();
    }
}

impl Served {
    fn start() -> (Served, Arc<Mutex<usize>>) {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::open(&dir.path().join("x.ctl")).unwrap();
        let poller = Poller::new().unwrap();
        let (stop, waker) = (Arc::new(AtomicBool::new(false)), poller.waker());
        let later = Arc::new(Mutex::new(0));
        let (s, l) = (stop.clone(), later.clone());
        let thread = Some(std::thread::spawn(move || serve(server, poller, s, l)));
        (Served { dir, stop, waker, thread }, later)
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("x.ctl")
    }

    fn appctl(&self, args: &[&str]) -> Output {
        Command::new("ovs-appctl").arg("-t").arg(self.path()).args(args).output().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        self.thread.take().unwrap().join().unwrap();
        assert!(!self.path().exists(), "the socket is removed with its server");
    }
}

fn text(b: &[u8]) -> &str {
    std::str::from_utf8(b).unwrap()
}

#[test]
fn the_references_client_understands_us() {
    let (s, _) = Served::start();
    let check = |args: &[&str], code: i32, out: &str, err: &str| {
        let o = s.appctl(args);
        assert_eq!((o.status.code(), text(&o.stdout)), (Some(code), out), "{args:?}");
        assert!(text(&o.stderr).starts_with(err), "{args:?}: {}", text(&o.stderr));
    };
    check(&["echo", "a", "b c"], 0, "a b c\n", "");
    check(&["now"], 0, "", "");
    check(&["fail"], 2, "", "it failed\novs-appctl: ");
    check(&["echo"], 2, "", "\"echo\" command requires at least 1 arguments\n");
    check(&["echo", "1", "2", "3", "4"], 2, "", "\"echo\" command takes at most 3 arguments\n");
    check(&["nope"], 2, "", "\"nope\" is not a valid command (use \"list-commands\" to see");
    let list = "The available commands are:\n  echo                    ARGS...\n  fail                    \n";
    check(&["list-commands"], 0, list, "");
}

#[test]
fn a_reply_may_come_later_and_blocks_nobody() {
    let (s, later) = Served::start();
    let child = Command::new("ovs-appctl").arg("-t").arg(s.path()).arg("later").stdout(Stdio::piped()).spawn().unwrap();
    while *later.lock().unwrap() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(text(&s.appctl(&["echo", "x"]).stdout), "x\n");
    assert_eq!(ours(&s.path(), "now", &[]), Ok(String::new()));
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "at last\n");
}

fn ours(path: &Path, command: &str, args: &[&str]) -> Reply {
    unixctl::call(path, command, args, Nanos::from_secs(10)).unwrap()
}

#[test]
fn our_client_and_a_raw_one() {
    use std::io::{Read, Write};
    let (s, _) = Served::start();
    let big = "x".repeat(300_000);
    assert_eq!(ours(&s.path(), "echo", &[&big]), Ok(format!("{big}\n")));
    assert_eq!(ours(&s.path(), "fail", &[]), Err("it failed\n".into()));

    let mut c = std::os::unix::net::UnixStream::connect(s.path()).unwrap();
    let mut ask = |method: &str, params: Value| -> Value {
        let text = json!({"method": method, "params": params, "id": 5}).to_string();
        c.write_all(text.as_bytes()).unwrap();
        let mut b = vec![0; 4096];
        let n = c.read(&mut b).unwrap();
        serde_json::from_slice(&b[..n]).unwrap()
    };
    assert_eq!(ask("echo", json!([1]))["error"], "\"echo\" command has non-string argument\n");
    assert_eq!(ask("set-options", json!(["--format", "json"]))["result"]["reply"], "");
    let reply = ask("echo", json!(["a"]));
    assert_eq!(reply, json!({"id": 5, "error": null, "result": {"reply": "a\n", "reply-format": "plain"}}));
    assert_eq!(ask("set-options", json!(["--format", "x"]))["error"], "option format has invalid value x\n");
    assert_eq!(ask("set-options", json!(["--format=text"]))["result"], "");
    c.write_all(b"nonsense").unwrap();
    assert_eq!(c.read(&mut [0; 16]).unwrap(), 0, "nonsense closes the connection");
    assert!(unixctl::call(Path::new("/nonexistent/x"), "a", &[], Nanos::from_secs(1)).is_err());
}

#[test]
fn many_connections_and_a_socket_left_behind() {
    let (s, _) = Served::start();
    let all: Vec<_> =
        (0..150).map(|_| std::os::unix::net::UnixStream::connect(s.path())).take_while(Result::is_ok).collect();
    assert!(all.len() > 100);
    drop(all);
    assert_eq!(ours(&s.path(), "echo", &["y"]), Ok("y\n".into()));

    let stale = s.dir.path().join("stale.ctl");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    drop(Server::open(&stale).unwrap());
    std::fs::write(&stale, "a file").unwrap();
    assert!(Server::open(&stale).is_err(), "only sockets are replaced");
}

#[test]
fn a_request_that_comes_while_replies_leave_is_kept() {
    use std::io::Write;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.ctl");
    let mut server = Server::open(&path).unwrap();
    let now = Nanos::ZERO;
    let ask = |c: &mut std::os::unix::net::UnixStream, method: &str| {
        c.write_all(json!({"method": method, "params": [], "id": 0}).to_string().as_bytes()).unwrap();
    };
    let mut a = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let mut b = std::os::unix::net::UnixStream::connect(&path).unwrap();
    ask(&mut a, "first");
    let first = server.turn(now);
    assert_eq!(first.len(), 1);
    ask(&mut b, "second");
    server.reply(first[0].token, Ok(String::new()));
    server.flush();
    let commands: Vec<String> = server.turn(now).into_iter().map(|r| r.command).collect();
    assert_eq!(commands, ["second"]);
}

#[test]
fn connections_left_open_lock_nobody_out() {
    let (s, _) = Served::start();
    let mut open = Vec::new();
    for i in 0..700 {
        open.push(std::os::unix::net::UnixStream::connect(s.path()).unwrap());
        if i % 50 == 0 {
            assert_eq!(ours(&s.path(), "echo", &["y"]), Ok("y\n".into()));
        }
    }
    assert_eq!(ours(&s.path(), "echo", &["y"]), Ok("y\n".into()));
}
