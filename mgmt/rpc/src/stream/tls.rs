//! What TLS streams are made with: our key and certificate, the authorities we trust, versions
//! and ciphers. The chain of a peer is checked, its host name is not: peers are known by who
//! certified them.
//!
//! The files are looked at for each new connection (three `stat`s) and read again when changed,
//! so certificates can be renewed under a running switch.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme, SupportedProtocolVersion,
};

use super::{ciphers, der};

/// Size of a key or certificate file that is read.
const PEM_FILE_MAX: u64 = 1 << 20;

/// A handle to the process's TLS settings; clones share them.
#[derive(Clone, Default)]
pub struct Tls(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    files: Files,
    protocols: Option<String>,
    ciphers: Option<String>,
    ciphersuites: Option<String>,
    /// Made from the files as they were at `stamps`.
    made: Option<Made>,
    /// A change that could not be loaded is complained about once.
    failed: Option<Stamps>,
}

#[derive(Clone, Default)]
struct Files {
    key: Option<PathBuf>,
    cert: Option<PathBuf>,
    ca: Option<PathBuf>,
    bootstrap: bool,
    peer_ca: Option<PathBuf>,
}

type Stamps = [Option<(u64, u64, i64, i64)>; 4];

struct Made {
    stamps: Stamps,
    client: Client,
    server: Arc<ServerConfig>,
}

/// How to make a client connection.
#[derive(Clone)]
pub(super) struct Client {
    pub config: Arc<ClientConfig>,
    /// Nobody is trusted yet: store the peer's authority here, then connect again.
    pub bootstrap: Option<PathBuf>,
}

impl Tls {
    /// Paths of our private key and certificate (chain), PEM.
    pub fn set_key_and_cert(&self, key: Option<&Path>, cert: Option<&Path>) {
        self.change(|s| {
            s.files.key = key.map(Into::into);
            s.files.cert = cert.map(Into::into);
        });
    }

    /// Path of the authorities that peers must be certified by; `none` trusts everybody. With
    /// `bootstrap`, a file that does not exist is fetched from the first peer.
    pub fn set_ca(&self, ca: Option<&Path>, bootstrap: bool) {
        self.change(|s| {
            s.files.ca = ca.map(Into::into);
            s.files.bootstrap = bootstrap;
        });
    }

    /// Certificates sent after our own, for peers that bootstrap.
    pub fn set_peer_ca(&self, path: Option<&Path>) {
        self.change(|s| s.files.peer_ca = path.map(Into::into));
    }

    pub fn set_protocols(&self, list: Option<&str>) {
        self.change(|s| s.protocols = list.map(Into::into));
    }
    pub fn set_ciphers(&self, list: Option<&str>) {
        self.change(|s| s.ciphers = list.map(Into::into));
    }
    pub fn set_ciphersuites(&self, list: Option<&str>) {
        self.change(|s| s.ciphersuites = list.map(Into::into));
    }

    fn change(&self, f: impl FnOnce(&mut State)) {
        let mut s = self.0.lock();
        f(&mut s);
        s.made = None;
        s.failed = None;
    }

    pub(super) fn client(&self) -> Result<Client, String> {
        let mut s = self.0.lock();
        Ok(s.refresh()?.client.clone())
    }

    pub(super) fn server(&self) -> Result<Arc<ServerConfig>, String> {
        let mut s = self.0.lock();
        let bootstrapping = s.files.bootstrap;
        let made = s.refresh()?;
        if bootstrapping && made.client.bootstrap.is_some() {
            return Err("no CA certificate yet".into());
        }
        Ok(made.server.clone())
    }
}

impl State {
    fn refresh(&mut self) -> Result<&Made, String> {
        let stamps = self.files.stamps();
        if self.made.as_ref().is_none_or(|m| m.stamps != stamps) && self.failed != Some(stamps) {
            match self.make(stamps) {
                Ok(m) => {
                    self.made = Some(m);
                    self.failed = None;
                }
                Err(e) => {
                    log::error!(target: "stream_ssl", "{e}");
                    // Files that are being replaced are often wrong for a moment: the old ones
                    // go on serving.
                    if self.made.is_none() {
                        return Err(e);
                    }
                    self.failed = Some(stamps);
                }
            }
        }
        self.made.as_ref().ok_or_else(|| "TLS is not configured".to_string())
    }

    fn make(&self, stamps: Stamps) -> Result<Made, String> {
        let key = self.files.key.as_ref().ok_or("Private key must be configured to use SSL")?;
        let cert = self.files.cert.as_ref().ok_or("Certificate must be configured to use SSL")?;
        let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|e| format!("{}: {e}", key.display()))?;
        let mut chain = certificates(cert)?;
        let ca = match &self.files.ca {
            None => return Err("CA certificate must be configured to use SSL".into()),
            Some(p) if p.as_os_str() == "none" => None,
            Some(p) if self.files.bootstrap && !p.exists() => None,
            Some(p) => Some(certificates(p)?),
        };
        let bootstrap = match &self.files.ca {
            Some(p) if self.files.bootstrap && ca.is_none() && p.as_os_str() != "none" => Some(p.clone()),
            _ => None,
        };
        let extra = match &self.files.peer_ca {
            Some(p) => certificates(p)?,
            None => ca.clone().unwrap_or_default(),
        };
        complete_chain(&mut chain, extra, self.files.peer_ca.is_some());

        let provider = Arc::new(self.provider());
        let versions = self.versions();
        let algorithms = provider.signature_verification_algorithms;
        let roots = ca.map(roots).transpose()?.map(Arc::new);
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|e| e.to_string())?;
        let server = match &roots {
            None => server.with_no_client_auth(),
            Some(r) => server.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(r.clone(), provider.clone())
                    .build()
                    .map_err(|e| e.to_string())?,
            ),
        };
        let server = server.with_single_cert(chain.clone(), key.clone_key()).map_err(|e| e.to_string())?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|e| e.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ChainOnly { roots, algorithms }))
            .with_client_auth_cert(chain, key)
            .map_err(|e| e.to_string())?;
        let client = Client { config: Arc::new(config), bootstrap };
        Ok(Made { stamps, client, server: Arc::new(server) })
    }

    fn provider(&self) -> CryptoProvider {
        let mut suites = Vec::new();
        let lists: [(&Option<String>, fn(&str) -> _, bool); 2] =
            [(&self.ciphersuites, ciphers::ciphersuites, true), (&self.ciphers, ciphers::ciphers, false)];
        for (list, parse, tls13) in lists {
            let (mut found, unknown) = list.as_deref().map(parse).unwrap_or_default();
            for name in unknown {
                log::warn!(target: "stream_ssl", "ignoring unknown or unsupported cipher {name}");
            }
            if found.is_empty() {
                found = ciphers::all(tls13);
            }
            suites.extend(found);
        }
        CryptoProvider { cipher_suites: suites, ..aws_lc_rs::default_provider() }
    }

    fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let (found, unknown) = self.protocols.as_deref().map(ciphers::versions).unwrap_or_default();
        for name in unknown {
            log::warn!(target: "stream_ssl", "ignoring unknown or unsupported protocol {name}");
        }
        if found.is_empty() { rustls::ALL_VERSIONS.to_vec() } else { found }
    }
}

impl Files {
    fn stamps(&self) -> Stamps {
        [&self.key, &self.cert, &self.ca, &self.peer_ca].map(|p| {
            let m = fs::metadata(p.as_ref()?).ok()?;
            Some((m.ino(), m.len(), m.mtime(), m.mtime_nsec()))
        })
    }
}

/// Appends the authorities that peers need: all of `extra` if asked for, else the issuer of the
/// last one, as OpenSSL's servers do.
fn complete_chain(chain: &mut Vec<CertificateDer<'static>>, extra: Vec<CertificateDer<'static>>, all: bool) {
    for c in extra {
        let issuer = chain.last().and_then(|l| der::names(l)).map(|(issuer, _)| issuer);
        let ours = issuer.is_some() && der::names(&c).map(|(_, subject)| subject) == issuer;
        if (all || ours) && !chain.contains(&c) {
            chain.push(c);
        }
    }
}

/// Checks the authority that a bootstrapping client was shown, and stores it.
pub(super) fn store_ca(path: &Path, chain: &[CertificateDer<'_>]) -> Result<(), String> {
    let ca = chain.last().ok_or("peer sent no certificates")?;
    if !der::is_self_issued(ca) {
        return Err("failed to bootstrap CA cert: peer's chain does not end in a self-signed certificate".into());
    }
    let pem = pem_of(ca);
    // Never replaces a file: two processes may bootstrap at once.
    let mut opts = fs::OpenOptions::new();
    let file = opts.write(true).create_new(true).open(path);
    let written = file.and_then(|mut f| std::io::Write::write_all(&mut f, pem.as_bytes()));
    written.map_err(|e| format!("failed to bootstrap CA cert: creating {}: {}", path.display(), super::errno_text(&e)))
}

fn pem_of(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for c in der.chunks(3) {
        let n = u32::from(c[0]) << 16 | u32::from(*c.get(1).unwrap_or(&0)) << 8 | u32::from(*c.get(2).unwrap_or(&0));
        for i in 0..4 {
            let digit = DIGITS[(n >> (18 - 6 * i)) as usize & 63] as char;
            text.push(if i <= c.len() { digit } else { '=' });
        }
    }
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|i| &text[i..text.len().min(i + 64)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let err = |e: std::io::Error| format!("{}: {}", path.display(), super::errno_text(&e));
    if fs::metadata(path).map_err(err)?.len() > PEM_FILE_MAX {
        return Err(format!("{}: file is too big", path.display()));
    }
    fs::read(path).map_err(err)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match certs {
        Ok(c) if !c.is_empty() => Ok(c),
        Ok(_) => Err(format!("{}: no certificate in file", path.display())),
        Err(e) => Err(format!("{}: {e}", path.display())),
    }
}

fn roots(certs: Vec<CertificateDer<'static>>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    let (_, ignored) = store.add_parsable_certificates(certs);
    if ignored > 0 {
        log::warn!(target: "stream_ssl", "{ignored} CA certificates cannot be used");
    }
    if store.is_empty() { Err("no usable CA certificate".into()) } else { Ok(store) }
}

/// Accepts whoever has a chain to a root, whatever its name; without roots, anybody.
struct ChainOnly {
    roots: Option<Arc<RootCertStore>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ChainOnly {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let cert = ParsedCertificate::try_from(end_entity)?;
            verify_server_cert_signed_by_trust_anchor(&cert, roots, intermediates, now, self.algorithms.all)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl fmt::Debug for ChainOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChainOnly({})", self.roots.as_ref().map_or(0, |r| r.len()))
    }
}
