//! Just enough of DER to tell who issued a certificate.

/// Issuer and subject of an X.509 certificate, as raw encoded names.
pub fn names(cert: &[u8]) -> Option<(&[u8], &[u8])> {
    let (certificate, _) = element(cert, 0x30)?;
    let (mut tbs, _) = element(certificate, 0x30)?;
    if tbs.first() == Some(&0xa0) {
        tbs = element(tbs, 0xa0)?.1; // version
    }
    let (_, tbs) = element(tbs, 0x02)?; // serial number
    let (_, tbs) = element(tbs, 0x30)?; // signature algorithm
    let (issuer, tbs) = element(tbs, 0x30)?;
    let (_, tbs) = element(tbs, 0x30)?; // validity
    let (subject, _) = element(tbs, 0x30)?;
    Some((issuer, subject))
}

pub fn is_self_issued(cert: &[u8]) -> bool {
    names(cert).is_some_and(|(issuer, subject)| issuer == subject)
}

/// Content of the element with `tag` that `b` starts with, and what follows it.
fn element(b: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&t, b) = b.split_first()?;
    let (&first, mut b) = b.split_first()?;
    let len = match first {
        0..=0x7f => usize::from(first),
        0x81..=0x84 => {
            let (l, rest) = b.split_at_checked(usize::from(first & 0x7f))?;
            b = rest;
            l.iter().fold(0usize, |n, &x| n << 8 | usize::from(x))
        }
        _ => return None,
    };
    (t == tag).then(|| b.split_at_checked(len)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_certificates_have_no_names() {
        // SEQ { SEQ { [0]{INT 2}, INT 1, SEQ{}, SEQ{issuer}, SEQ{}, SEQ{subject} } }
        let tbs =
            [&[0xa0, 3, 2, 1, 2][..], &[2, 1, 1], &[0x30, 0], &[0x30, 2, 5, 0], &[0x30, 0], &[0x30, 2, 4, 0]].concat();
        let mut cert = vec![0x30, tbs.len() as u8 + 2, 0x30, tbs.len() as u8];
        cert.extend(&tbs);
        assert_eq!(names(&cert), Some((&[5, 0][..], &[4, 0][..])));
        assert!(!is_self_issued(&cert));
        for n in 0..cert.len() {
            assert_eq!(names(&cert[..n]), None, "{n}");
        }
        assert_eq!(names(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0]), None);
        assert_eq!(names(&[0x30, 0x80, 0, 0]), None);
    }
}
