use std::io;

/// Why the kernel could not be asked, or what it answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused `op`; the text is the errno's, as the reference prints it.
    #[error("{op}: {source}")]
    Refused { op: &'static str, source: io::Error },
    /// An answer that does not follow its own format.
    #[error("{op}: malformed answer from the kernel")]
    Malformed { op: &'static str },
    /// The kernel's answer ended without the object asked for.
    #[error("{op}: no answer from the kernel")]
    NoAnswer { op: &'static str },
}

impl Error {
    pub(crate) fn os(op: &'static str, errno: i32) -> Error {
        Error::Refused { op, source: io::Error::from_raw_os_error(errno) }
    }

    pub(crate) fn io(op: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::Refused { op, source }
    }

    /// The errno, where the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Refused { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// The device asked for does not exist (any more).
    pub fn is_no_device(&self) -> bool {
        matches!(self.errno(), Some(libc::ENODEV | libc::ENXIO))
    }
}
