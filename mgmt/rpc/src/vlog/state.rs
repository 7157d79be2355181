//! The logger's state: modules with their levels, patterns, open destinations.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{LazyLock, OnceLock};

use fv_core::{Clock, Nanos};
use parking_lot::{Condvar, Mutex, RwLock};

use super::limit::{Limiter, Verdict};
use super::pattern::{self, Line};
use super::sink::{LogFile, Syslog};
use super::{Destination, Level};

/// Modules beyond the registered ones that may appear, e.g. targets of dependencies.
const MODULES_MAX: usize = 1024;
/// Messages that wait for `drain`; more are counted and lost.
const DEFERRED_MAX: usize = 4096;
/// Facility "daemon", unless set otherwise.
const DEFAULT_FACILITY: u8 = 3;
/// RFC 5424, as network receivers expect it.
const TARGET_PATTERN: &str = "<%B>1 %D{%Y-%m-%dT%H:%M:%S.###Z} %E %A %P %c - \u{feff}%m";
pub(super) const SYSLOG_PREFIX: &str = "<%B> %D{%h %e %T} %E %A: ";

pub(super) struct Module {
    name: String,
    /// By destination, a `Level`.
    levels: [AtomicU8; 3],
    rate_limited: AtomicBool,
}

static MODULES: RwLock<BTreeMap<String, &'static Module>> = RwLock::new(BTreeMap::new());
pub(super) static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::new()));
static DEFERRED: Mutex<Deferred> = Mutex::new(Deferred { entries: VecDeque::new(), lost: 0 });
static CLOCK: OnceLock<Clock> = OnceLock::new();
static LIMITER: LazyLock<Mutex<Limiter>> = LazyLock::new(Mutex::default);
static DEFERRED_READY: Condvar = Condvar::new();

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    static LABEL: RefCell<Option<String>> = const { RefCell::new(None) };
    static DEFER: Cell<bool> = const { Cell::new(false) };
}

pub(super) struct State {
    program: String,
    host: String,
    start: Nanos,
    pub patterns: [String; 3],
    pub facility: u8,
    defaults: [Level; 3],
    default_limited: bool,
    file: Option<LogFile>,
    pub syslog: Syslog,
    pub syslog_target: Syslog,
}

struct Deferred {
    entries: VecDeque<Entry>,
    lost: u64,
}

/// A message with all that depends on the thread and the moment.
struct Entry {
    module: &'static Module,
    level: Level,
    message: String,
    number: u64,
    thread: String,
    wall: Nanos,
    now: Nanos,
}

impl State {
    fn new() -> State {
        State {
            program: "ferrovia".into(),
            host: String::new(),
            start: Nanos::ZERO,
            patterns: Destination::ALL.map(|d| d.default_pattern().to_string()),
            facility: DEFAULT_FACILITY,
            defaults: [Level::Info; 3],
            default_limited: true,
            file: None,
            syslog: Syslog::Null,
            syslog_target: Syslog::Null,
        }
    }

    /// To every destination that wants it.
    fn emit(&mut self, e: &Entry) {
        for d in Destination::ALL {
            if e.module.level(d) < e.level || !self.is_open(d) {
                continue;
            }
            let line = Line {
                program: &self.program,
                module: &e.module.name,
                level: e.level,
                message: &e.message,
                number: e.number,
                thread: &e.thread,
                host: &self.host,
                facility: self.facility,
                wall: e.wall,
                since_start: e.now.saturating_sub(self.start),
            };
            let mut text = pattern::format(&self.patterns[d as usize], &line);
            if d == Destination::Syslog {
                text.insert_str(0, &pattern::format(SYSLOG_PREFIX, &line));
                if !self.syslog_target.is_null() {
                    let remote = pattern::format(TARGET_PATTERN, &line);
                    self.syslog_target.write(&remote);
                }
            }
            text.push('\n');
            self.write(d, &text);
        }
    }

    fn write(&mut self, d: Destination, line: &str) {
        match d {
            Destination::Console => {
                let _ = std::io::stderr().lock().write_all(line.as_bytes());
            }
            Destination::File => {
                if let Some(f) = &mut self.file {
                    f.write(line);
                }
            }
            Destination::Syslog => self.syslog.write(line.trim_end_matches('\n')),
        }
    }

    fn is_open(&self, d: Destination) -> bool {
        match d {
            Destination::Console => true,
            Destination::File => self.file.is_some(),
            Destination::Syslog => !self.syslog.is_null() || !self.syslog_target.is_null(),
        }
    }
}

/// The `log` crate's view.
pub(super) struct Backend;

impl log::Log for Backend {
    fn enabled(&self, m: &log::Metadata<'_>) -> bool {
        module(m.target()).max_level() >= Level::from(m.level())
    }

    fn log(&self, r: &log::Record<'_>) {
        let (m, level) = (module(r.target()), Level::from(r.level()));
        if m.max_level() < level {
            return;
        }
        if m.rate_limited.load(Ordering::Relaxed) {
            let site = (
                r.file_static().map_or(0, |f| f.as_ptr() as usize),
                r.line().unwrap_or(0),
                std::ptr::from_ref(m) as usize,
            );
            let now = CLOCK.get().map_or(Nanos::ZERO, Clock::now);
            let verdict = LIMITER.lock().check(site, level, now);
            match verdict {
                Verdict::Drop => return,
                Verdict::Pass => {}
                Verdict::PassAfter(text) => write(m, level, format_args!("{text}")),
            }
        }
        write(m, level, *r.args());
    }

    fn flush(&self) {}
}

impl Module {
    fn max_level(&self) -> Level {
        Level::from_u8(self.levels.iter().map(|l| l.load(Ordering::Relaxed)).max().unwrap_or(0))
    }

    fn level(&self, d: Destination) -> Level {
        Level::from_u8(self.levels[d as usize].load(Ordering::Relaxed))
    }
}

/// A target's module; made with the current defaults when it is new.
fn module(target: &str) -> &'static Module {
    let name = match target.split_once("::") {
        None => target,
        Some((krate, _)) if krate.starts_with("fv_") => target.rsplit("::").next().unwrap_or(target),
        Some((krate, _)) => krate,
    };
    if let Some(m) = MODULES.read().get(name) {
        return m;
    }
    add_module(name)
}

fn add_module(name: &str) -> &'static Module {
    let (levels, limited) = {
        let s = STATE.lock();
        (s.defaults, s.default_limited)
    };
    let mut modules = MODULES.write();
    let name = if modules.len() < MODULES_MAX { name } else { "other" };
    if let Some(m) = modules.get(name) {
        return m;
    }
    // Modules live as long as the process: their number is bounded.
    let m: &'static Module = Box::leak(Box::new(Module {
        name: name.to_string(),
        levels: levels.map(|l| AtomicU8::new(l as u8)),
        rate_limited: AtomicBool::new(limited),
    }));
    modules.insert(name.to_string(), m);
    m
}

/// Makes modules known before they log, for `list` and for specs.
pub fn register_modules(names: &[&str]) {
    for n in names {
        module(n);
    }
}

pub(super) fn is_module(name: &str) -> Option<String> {
    MODULES.read().keys().find(|m| m.eq_ignore_ascii_case(name)).cloned()
}

/// Sets the level of one module or all, for one destination or all.
pub fn set_level(module_name: Option<&str>, destination: Option<Destination>, level: Level) {
    if module_name.is_none() {
        let mut s = STATE.lock();
        for d in Destination::ALL.into_iter().filter(|d| destination.is_none_or(|o| o == *d)) {
            s.defaults[d as usize] = level;
        }
    }
    for m in MODULES.read().values().filter(|m| module_name.is_none_or(|n| m.name == n)) {
        for d in Destination::ALL.into_iter().filter(|d| destination.is_none_or(|o| o == *d)) {
            m.levels[d as usize].store(level as u8, Ordering::Relaxed);
        }
    }
    refresh_max_level();
}

/// Switches rate limits of a module, or of all. False if there is no such module.
pub(super) fn set_rate_limit(module_name: Option<&str>, on: bool) -> bool {
    if module_name.is_none() {
        STATE.lock().default_limited = on;
    }
    let mut any = module_name.is_none();
    for m in MODULES.read().values().filter(|m| module_name.is_none_or(|n| m.name == n)) {
        m.rate_limited.store(on, Ordering::Relaxed);
        any = true;
    }
    any
}

/// The one relaxed load that most messages end at.
pub(super) fn refresh_max_level() {
    let defaults = STATE.lock().defaults;
    let modules = MODULES.read();
    let max = modules.values().map(|m| m.max_level()).chain(defaults).max().unwrap_or(Level::Info);
    log::set_max_level(max.filter());
}

pub(super) fn configure(program: &str, clock: &Clock) {
    let mut s = STATE.lock();
    s.program = program.to_string();
    s.host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    s.start = clock.now();
    let _ = CLOCK.set(clock.clone());
}

pub(super) fn set_thread_label(label: &str) {
    LABEL.set(Some(label.to_string()));
}

/// This thread's messages go through the queue from now on: it never waits for a file, nor for
/// whoever writes one.
pub fn defer_output() {
    DEFER.set(true);
}

/// Writes the messages of deferring threads; waits up to `wait` for the first.
pub fn drain(wait: std::time::Duration) {
    let (entries, lost) = {
        let mut d = DEFERRED.lock();
        if d.entries.is_empty() && !wait.is_zero() {
            DEFERRED_READY.wait_for(&mut d, wait);
        }
        (std::mem::take(&mut d.entries), std::mem::take(&mut d.lost))
    };
    for e in &entries {
        STATE.lock().emit(e);
    }
    if lost > 0 {
        log::warn!(target: "vlog", "{lost} log messages of busy threads were lost");
    }
}

pub(super) fn write_always(target: &str, level: Level, text: fmt::Arguments<'_>) {
    write(module(target), level, text);
}

fn write(module: &'static Module, level: Level, args: fmt::Arguments<'_>) {
    let number = NUMBER.get() + 1;
    NUMBER.set(number);
    let thread = LABEL
        .with_borrow(Clone::clone)
        .unwrap_or_else(|| std::thread::current().name().filter(|n| *n != "main").unwrap_or_default().to_string());
    let (wall, now) = CLOCK.get().map(|c| (c.wall(), c.now())).unwrap_or_default();
    let e = Entry { module, level, message: args.to_string(), number, thread, wall, now };
    if !DEFER.get() {
        STATE.lock().emit(&e);
        return;
    }
    let mut q = DEFERRED.lock();
    if q.entries.len() >= DEFERRED_MAX {
        q.lost += 1;
        return;
    }
    q.entries.push_back(e);
    DEFERRED_READY.notify_one();
}

pub(super) fn open_file(path: &Path) -> Result<(), String> {
    match LogFile::open(path) {
        Ok(f) => {
            STATE.lock().file = Some(f);
            log::info!(target: "vlog", "opened log file {}", path.display());
            Ok(())
        }
        Err(e) => {
            let e = crate::stream::errno_text(&e);
            log::warn!(target: "vlog", "failed to open {} for logging: {e}", path.display());
            Err(e)
        }
    }
}

/// Opens the log file again by name, after a rotation.
pub fn reopen_file() -> Result<(), String> {
    let Some(path) = STATE.lock().file.as_ref().map(|f| f.path.clone()) else {
        return Err("Logging to file not configured".into());
    };
    log::info!(target: "vlog", "closing log file");
    open_file(&path)
}

/// Stops logging to the file.
pub fn close_file() {
    STATE.lock().file = None;
}

/// What `vlog/list` prints.
pub fn list() -> String {
    let mut out =
        String::from("                 console    syslog    file\n                 -------    ------    ------\n");
    for m in MODULES.read().values() {
        let [s, c, f] = Destination::ALL.map(|d| m.level(d).name());
        let limit = if m.rate_limited.load(Ordering::Relaxed) { "" } else { "    (rate limiting disabled)" };
        let _ = writeln!(out, "{:<16}  {c:>4}       {s:>4}       {f:>4}{limit}", m.name);
    }
    out
}

/// What `vlog/list-pattern` prints.
pub fn list_pattern() -> String {
    let mut out = String::from(
        "         prefix                            format\n         ------                            ------\n",
    );
    let s = STATE.lock();
    for d in Destination::ALL {
        let prefix = if d == Destination::Syslog { SYSLOG_PREFIX.trim_end() } else { "none" };
        let _ = writeln!(out, "{:<7}  {prefix:<32}  {}", d.name(), s.patterns[d as usize]);
    }
    out
}
