//! Matches, and single fields in actions, as type-length-value entries: NXM (OpenFlow 1.0) and OXM
//! (1.2+), experimenter classes and masks included.

use crate::error::OfError;
use crate::version::Version;
use crate::wire::{Put, Reader};
use fv_flow::field::{Header, Maskable, TUN_OPTION_MAX, TunOption};
use fv_flow::{Field, FieldValue, FlowMask, Match};
use std::sync::LazyLock;

/// The pseudo-field that carries a cookie in NXM flow-mods and statistics requests: entry headers
/// without and with a mask. They share their number with `mpls_ttl`; only the length differs.
const COOKIE: u32 = 0x0001_3c08;
const COOKIE_W: u32 = 0x0001_3d10;
/// Widest value of an entry but an option.
const MAX_VALUE: usize = 16;

/// What a decoder does about fields that it does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// They are an error.
    Strict,
    /// They are skipped.
    Loose,
}

/// A match, and the cookie that came among its fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decoded {
    pub match_: Match,
    /// Value and mask.
    pub cookie: Option<(u64, u64)>,
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub field: Field,
    pub value: FieldValue,
    /// The exact mask when the entry has none.
    pub mask: FieldValue,
    pub has_mask: bool,
}

/// An entry's header, taken apart.
#[derive(Clone, Copy)]
struct RawHeader {
    /// In the form of [`Header::id`].
    id: u64,
    has_mask: bool,
    /// Bytes of value and mask.
    payload: usize,
}

impl RawHeader {
    fn pull(r: &mut Reader<'_>) -> Result<RawHeader, OfError> {
        let h = r.u32()?;
        let (class, field, has_mask, mut payload) = (h >> 16, h >> 9 & 0x7f, h & 0x100 != 0, h as usize & 0xff);
        let mut id = u64::from(class) << 48 | u64::from(field) << 9;
        if class == u32::from(Header::EXPERIMENTER) {
            payload = payload.checked_sub(4).ok_or(OfError::BmcBadLen)?;
            id |= u64::from(r.u32()?) << 16;
        }
        Ok(RawHeader { id, has_mask, payload })
    }

    /// The field: the length is part of its name. `action` selects the error of set-field.
    fn field(&self, action: bool) -> Result<Field, OfError> {
        let unknown = if action { OfError::BacBadSetType } else { OfError::BmcBadField };
        let f = Field::by_header(self.id).ok_or(unknown)?;
        if let Field::TunMetadata(o) = f {
            return self.option(o, unknown);
        }
        let n = if self.has_mask { 2 * f.n_bytes() } else { f.n_bytes() };
        match n == self.payload {
            true => Ok(f),
            // A mask of another size than the value.
            false if self.has_mask && self.payload / 2 == f.n_bytes() => Err(OfError::BmcBadLen),
            false if action && self.payload != 0 => Err(OfError::BacBadSetLen),
            false => Err(unknown),
        }
    }
}

impl RawHeader {
    /// An option of a tunnel's header: of whatever length the peer takes it for. Zero may have none.
    fn option(&self, o: TunOption, unknown: OfError) -> Result<Field, OfError> {
        let n = self.payload / if self.has_mask { 2 } else { 1 };
        match u8::try_from(n).ok().filter(|n| *n <= TUN_OPTION_MAX) {
            Some(_) if self.has_mask && !self.payload.is_multiple_of(2) => Err(OfError::BmcBadLen),
            Some(n) => Ok(Field::TunMetadata(o.sized(n))),
            None => Err(unknown),
        }
    }
}

/// Takes a header that stands alone, as the operand of an action: no mask, no value.
pub(crate) fn pull_header(r: &mut Reader<'_>) -> Result<Field, OfError> {
    if r.len() < 4 {
        return Err(OfError::BacBadSetLen);
    }
    let h = RawHeader::pull(r).map_err(|_| OfError::BmcBadField)?;
    // How long an option is, the switch knows better.
    let f = match Field::by_header(h.id) {
        Some(f @ Field::TunMetadata(_)) => f,
        _ => h.field(false)?,
    };
    if h.has_mask { Err(OfError::BmcBadMask) } else { Ok(f) }
}

/// Takes a header of a list of fields (table features): the field and its mask bit, or None if it is
/// not known.
pub(crate) fn pull_feature(r: &mut Reader<'_>) -> Result<Option<(Field, bool)>, OfError> {
    let h = r.u32()?;
    let mut id = u64::from(h >> 16) << 48 | u64::from(h >> 9 & 0x7f) << 9;
    if h >> 16 == u32::from(Header::EXPERIMENTER) {
        id |= u64::from(r.u32()?) << 16;
    }
    Ok(Field::by_header(id).map(|f| (f, h & 0x100 != 0)))
}

/// Appends a header to a list of fields.
pub(crate) fn put_feature(out: &mut Vec<u8>, f: Field, has_mask: bool, version: Version) {
    put_raw(out, f, version.wire(), has_mask);
}

/// A 32-bit header that stands alone.
pub(crate) fn field_of_header(h: u32) -> Result<Field, OfError> {
    pull_header(&mut Reader::body(&h.to_be_bytes())).map_err(|_| OfError::BacBadSetType)
}

/// Takes one entry. `Err(BmcBadField)` after the entry was taken whole if its field is not known.
pub(crate) fn pull_entry(r: &mut Reader<'_>, action: bool) -> Result<Entry, OfError> {
    let h = RawHeader::pull(r)?;
    if h.payload > r.len() {
        return Err(if action { OfError::BacBadSetLen } else { OfError::BmcBadLen });
    }
    let field = h.field(action);
    let payload = r.bytes(h.payload)?;
    let (v, m) = payload.split_at(payload.len() / 2);
    if h.has_mask && v.iter().zip(m).any(|(v, m)| v & !m != 0) {
        // In an action a wrong length counts for more.
        let worse = field.as_ref().err().filter(|_| action).cloned();
        return Err(worse.unwrap_or(OfError::BmcBadWildcards));
    }
    // The entry is taken: the caller may go on behind it.
    let field = field?;
    let n = field.n_bytes();
    let value = FieldValue::from_be_bytes(&payload[..n]);
    if !h.has_mask {
        let mask = if field.tun_option().is_some() { FieldValue::EXACT } else { field.mask_bits() };
        return Ok(Entry { field, value, mask, has_mask: false });
    }
    let raw_mask = FieldValue::from_be_bytes(&payload[n..]);
    let full = raw_mask & field.mask_bits() == field.mask_bits();
    // Part of a field that only matches as a whole may be written, but not of a 32-bit port.
    if field.info().maskable == Maskable::Exact && !full && raw_mask.0 != 0 {
        match action {
            true if field == Field::InPortOxm => return Err(OfError::BacBadSetArgument),
            true => {}
            false => return Err(OfError::BmcBadMask),
        }
    }
    let mask = if full && n != 0 { field.mask_bits() } else { raw_mask & field.mask_bits() };
    Ok(Entry { field, value, mask, has_mask: true })
}

fn pull_cookie(r: &mut Reader<'_>) -> Result<Option<(u64, u64)>, OfError> {
    let masked = match r.rest().first_chunk().map(|b| u32::from_be_bytes(*b)) {
        Some(COOKIE) => false,
        Some(COOKIE_W) => true,
        _ => return Ok(None),
    };
    r.skip(4)?;
    let value = r.u64()?;
    let mask = if masked { r.u64()? } else { u64::MAX };
    if value & !mask != 0 {
        return Err(OfError::BmcBadWildcards);
    }
    Ok(Some((value, mask)))
}

/// Decodes the entries of one match. `oxm` forbids the cookie pseudo-field.
pub fn decode(bytes: &[u8], mode: Mode, oxm: bool) -> Result<Decoded, OfError> {
    let mut r = Reader::new(bytes, OfError::BmcBadLen);
    let mut out = Decoded::default();
    while !r.is_empty() {
        if let Some(c) = pull_cookie(&mut r)? {
            if oxm {
                return Err(OfError::BmcBadField);
            }
            if out.cookie.replace(c).is_some() {
                return Err(OfError::BmcDupField);
            }
            continue;
        }
        let e = match pull_entry(&mut r, false) {
            Err(OfError::BmcBadField) if mode == Mode::Loose => continue,
            e => e?,
        };
        add(&mut out.match_, &e)?;
    }
    Ok(out)
}

fn add(m: &mut Match, e: &Entry) -> Result<(), OfError> {
    if let Field::TunMetadata(o) = e.field {
        return add_option(m, e, o);
    }
    if !e.field.is_value_valid(e.value) {
        return Err(OfError::BmcBadValue);
    }
    if !e.field.are_prereqs_ok(m) {
        return Err(OfError::BmcBadPrereq);
    }
    if !e.field.is_all_wild(&m.mask) {
        return Err(OfError::BmcDupField);
    }
    if e.mask.0 != 0 {
        m.set_field_masked(e.field, &e.value, &e.mask);
    }
    Ok(())
}

/// An option gets the next place of the match's own layout, until a switch binds it to its table's.
fn add_option(m: &mut Match, e: &Entry, o: TunOption) -> Result<(), OfError> {
    if m.layout.option(o.index()).is_some() {
        return Err(OfError::BmcDupField);
    }
    let len = e.field.n_bytes().max(1) as u8;
    if !m.layout.add(o.index(), len) {
        return Err(OfError::NxFmfcInvalidTlvField);
    }
    if let Some((f, v, mask)) = m.layout.bind_value(e.field, e.value, e.mask) {
        m.set_field_masked(f, &v, &mask);
    }
    Ok(())
}

/// The version whose headers are used: NXM's are those of OpenFlow 1.0.
fn wire_version(version: Option<Version>) -> u8 {
    version.unwrap_or(Version::V10).wire()
}

/// Appends a header that stands alone.
pub(crate) fn put_header(out: &mut Vec<u8>, f: Field, version: Version) {
    put_raw(out, f, version.wire(), false);
}

/// Whether the field's header takes 8 bytes instead of 4.
pub(crate) fn is_experimenter(f: Field, version: Version) -> bool {
    f.header(version.wire()).is_some_and(|h| h.class == Header::EXPERIMENTER)
}

fn put_raw(out: &mut Vec<u8>, f: Field, version: u8, has_mask: bool) {
    // A peer may lack the experimenter's code of this one, but every peer has the older.
    let header = if f == Field::DpHash { f.info().headers.first() } else { f.header(version) };
    let Some(h) = header else { return };
    let experimenter = h.class == Header::EXPERIMENTER;
    let payload = f.n_bytes() * if has_mask { 2 } else { 1 } + if experimenter { 4 } else { 0 };
    out.u16(h.class).u8(h.field << 1 | u8::from(has_mask)).u8(payload as u8);
    if experimenter {
        out.u32(h.experimenter);
    }
}

/// Appends one entry; with a mask unless it is exact.
pub(crate) fn put_entry(out: &mut Vec<u8>, f: Field, value: FieldValue, mask: FieldValue, version: Option<Version>) {
    let has_mask = mask & f.mask_bits() != f.mask_bits();
    put_raw(out, f, wire_version(version), has_mask);
    if f.tun_option().is_some() {
        out.put(&value.to_be_bytes(f.n_bytes()));
        if has_mask {
            out.put(&mask.to_be_bytes(f.n_bytes()));
        }
        return;
    }
    let from = MAX_VALUE - f.n_bytes().min(MAX_VALUE);
    out.put(&value.0.to_be_bytes()[from..]);
    if has_mask {
        out.put(&mask.0.to_be_bytes()[from..]);
    }
}

/// Fields that stand for the same bits as others: which of them a version sends.
fn is_sent(f: Field, version: Option<Version>) -> bool {
    let oxm = version.is_some();
    match f {
        Field::InPort | Field::VlanTci | Field::IpDscp => !oxm,
        Field::InPortOxm | Field::VlanVid | Field::VlanPcp | Field::IpDscpShifted => oxm,
        Field::XXReg0 | Field::XXReg1 | Field::XXReg2 | Field::XXReg3 => false,
        f if (Field::XReg0..=Field::XReg7).contains(&f) => version >= Some(Version::V15),
        f if f.reg_index().is_some() => version < Some(Version::V15),
        Field::TunMetadata(_) => true,
        f => !f.info().headers.is_empty(),
    }
}

/// Fields in the order in which they are sent: what identifies the packet, its headers from the
/// outside in, what the switch adds. Each field is behind its prerequisites. With the words of a key that
/// each is in.
static ORDER: LazyLock<Vec<(Field, u128)>> = LazyLock::new(|| {
    let mut order: Vec<Field> = Field::all().collect();
    order.sort_by_key(|f| rank(*f));
    order.into_iter().map(|f| (f, words_of(f))).collect()
});

static ALL: LazyLock<Vec<(Field, u128)>> = LazyLock::new(|| Field::all().map(|f| (f, words_of(f))).collect());

/// Which words of a key the field is in.
fn words_of(f: Field) -> u128 {
    let mut mask = FlowMask::default();
    mask.set_field(f);
    matched_words(&mask)
}

/// Which words of the mask have bits: of a hundred fields, most have none of theirs there.
fn matched_words(mask: &FlowMask) -> u128 {
    mask.0.words().iter().enumerate().fold(0, |map, (i, w)| map | u128::from(*w != 0) << i)
}

/// Rank of the registers, behind which tunnels' options do not come.
const REGISTERS: u8 = 4;

fn rank(f: Field) -> u8 {
    match f {
        Field::DpHash | Field::RecircId | Field::PacketType | Field::ConjId => 0,
        Field::InPort | Field::InPortOxm | Field::ActsetOutput => 1,
        f if f >= Field::EthSrc => 2,
        Field::Metadata => 6,
        f if f >= Field::PktMark && f < Field::Reg0 => 5,
        f if f >= Field::Reg0 => REGISTERS,
        _ => 3,
    }
}

/// The fields that the mask matches any bit of.
pub(super) fn matched_fields(mask: &FlowMask) -> impl Iterator<Item = Field> {
    let matched = matched_words(mask);
    let mask = *mask;
    ALL.iter().filter(move |(f, words)| words & matched != 0 && !f.is_all_wild(&mask)).map(|(f, _)| *f)
}

/// Appends the entries of `m`: OXM of `version`, or NXM if None. Fields whose prerequisites `m` does
/// not meet are left out.
pub fn encode(out: &mut Vec<u8>, m: &Match, version: Option<Version>, cookie: Option<(u64, u64)>) {
    let matched = matched_words(&m.mask);
    let (before, after) = ORDER.split_at(ORDER.partition_point(|(f, _)| rank(*f) < REGISTERS));
    let there = |list: &'static [(Field, u128)]| list.iter().filter(move |(_, w)| w & matched != 0).map(|(f, _)| *f);
    let options = m.layout.iter().map(Field::TunMetadata);
    for f in there(before).chain(options).chain(there(after)).filter(|f| is_sent(*f, version)) {
        if f.is_all_wild(&m.mask) || !f.are_prereqs_ok(m) {
            continue;
        }
        // A tag's absence is a match on the presence bit alone: it must not look like an exact TCI.
        let (value, mask) = f.of_match(m);
        put_entry(out, f, value, mask, version);
    }
    if let Some((value, mask)) = cookie.filter(|c| c.1 != 0) {
        let exact = mask == u64::MAX;
        out.u32(if exact { COOKIE } else { COOKIE_W }).u64(value);
        if !exact {
            out.u64(mask);
        }
    }
}
