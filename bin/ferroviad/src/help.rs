//! The help text.

pub const TEXT: &str = "\
ferroviad: virtual switch daemon, compatible with ovs-vswitchd
usage: ferroviad [OPTIONS] [DATABASE]

Forwards packets between virtual machines, containers and network devices as the
database says, and as OpenFlow controllers program it. Called as ovs-vswitchd it
takes the same options and is always a client of DATABASE.

DATABASE is where an OVSDB server listens (default: unix:RUNDIR/db.sock):
  tcp:HOST:PORT  ssl:HOST:PORT  unix:FILE      connect to it
  ptcp:[PORT][:HOST]  pssl:[PORT][:HOST]  punix:FILE
                                               wait for it to connect
Called as ferroviad without DATABASE, it uses that default if a server is there,
and otherwise serves DBDIR/conf.db itself.

Database:
  --embedded-db           serve DBDIR/conf.db in this process; fails if another
                          process serves that file or its socket

Process:
  --detach                go to the background; returns when the first
                          configuration is in place, with status 0 if it is
  --no-chdir              keep the current directory when detached
  --pidfile[=FILE]        write and lock a pidfile (RUNDIR/ovs-vswitchd.pid)
  --overwrite-pidfile     replace the pidfile of a process that runs
  --monitor               keep a process that restarts this one after a crash
  --user=USER[:GROUP]     change to this user, keeping the rights on networks
  --no-self-confinement   accepted; there is nothing to switch off
  --mlockall              keep the process's memory in RAM
  --unixctl=SOCKET        control socket (RUNDIR/ovs-vswitchd.PID.ctl);
                          `none' for no socket

Datapath:
  --enable-dummy[=LEVEL]  offer dummy bridges and ports for tests. LEVEL
                          `override' turns all types into dummies, `system' the
                          system type only
  --disable-system        do without the system's network devices as bridges
  --disable-system-route  do not follow the system's routes
  --dummy-numa=LIST       NUMA node of each pretended core, e.g. 0,0,1,1
  --hw-rawio-access       keep the right to program hardware directly
  --dpdk                  refused: set other_config:dpdk-init in the database

TLS (for ssl: and pssl:):
  -p, --private-key=FILE  our private key, PEM
  -c, --certificate=FILE  our certificate, PEM
  -C, --ca-cert=FILE      authorities that peers must be certified by
  --bootstrap-ca-cert=FILE
                          the same; if FILE is missing, it is taken from the
                          first peer and stored
  --peer-ca-cert=FILE     authority certificates sent along with ours
  --ssl-protocols=LIST    versions, of TLSv1.2 TLSv1.3
  --ssl-ciphers=LIST      cipher suites of TLS 1.2
  --ssl-ciphersuites=LIST cipher suites of TLS 1.3

Logging:
  -v, --verbose[=SPEC]    set levels: [MODULE:][syslog|console|file:][off|emer|
                          err|warn|info|dbg], or PATTERN:DESTINATION:FORMAT;
                          alone: everything
  --log-file[=FILE]       log to FILE (LOGDIR/ovs-vswitchd.log)
  --syslog-method=METHOD  libc, unix:FILE, udp:IP:PORT or null
  --syslog-target=HOST:PORT
                          send the log there by UDP too

Others:
  -h, --help              this text
  -V, --version           version of the interfaces, then of the program

Directories come from the environment: OVS_RUNDIR (/var/run/openvswitch),
OVS_LOGDIR (/var/log/openvswitch), OVS_DBDIR (/etc/openvswitch), OVS_SYSCONFDIR
(/etc), OVS_PKGDATADIR (/usr/share/openvswitch). OVS_SYSLOG_METHOD is the
default of --syslog-method.

Signals: SIGTERM and SIGINT end the switch; SIGHUP opens the log file again.
";
