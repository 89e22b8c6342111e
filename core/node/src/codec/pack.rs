//! Read and write the `MessagePack` bodies that the node handles itself; `native/messages.py` has their definition.

use ringfence_wire::{CREDENTIAL_BYTES_MAX, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN};
use rmp::{decode, encode};

use crate::api::refusal::Refusal;
use crate::codec::unpack::value_len;

/// Body of REFUSED.
pub fn refused(refusal: &Refusal) -> Box<[u8]> {
    let mut out = Vec::with_capacity(128);
    map(&mut out, 2);
    text(&mut out, "message");
    text(&mut out, &refusal.message);
    text(&mut out, "details");
    map(&mut out, refusal.details.len());
    for (name, value) in &refusal.details {
        text(&mut out, name);
        number(&mut out, *value);
    }
    out.into()
}

/// Body of the answer to RESOLVE: (producer epoch, last sequence, greatest send), (sequence, first offset, rows)*.
pub fn resolved(epoch: Option<u64>, last: Option<(u64, u64)>, answers: &[(u64, u64, u32)]) -> Box<[u8]> {
    let mut out = Vec::with_capacity(64 + answers.len() * 24);
    map(&mut out, 4);
    text(&mut out, "producer_epoch");
    optional(&mut out, epoch);
    text(&mut out, "sequence");
    optional(&mut out, last.map(|last| last.0));
    text(&mut out, "send");
    optional(&mut out, last.map(|last| last.1));
    text(&mut out, "answers");
    windows(&mut out, answers);
    out.into()
}

/// Body of TRUNCATED to a member: (partition, end) of parents that were pruned unread.
pub fn missed_rows(pruned: &[(u64, u64)], begin: u64) -> Box<[u8]> {
    let mut out = Vec::with_capacity(32 + pruned.len() * 19);
    map(&mut out, 2);
    text(&mut out, "pruned");
    array(&mut out, pruned.len());
    for (partition, end) in pruned {
        array(&mut out, 2);
        number(&mut out, *partition);
        number(&mut out, *end);
    }
    text(&mut out, "begin");
    number(&mut out, begin);
    out.into()
}

/// Body of CONFLICT to a member without a position: (partition, end, how) of parents.
pub fn store_position(begin: u64, settled: Option<u64>, parents: &[(u64, u64, u64)]) -> Box<[u8]> {
    let mut out = Vec::with_capacity(48 + parents.len() * 28);
    map(&mut out, 2 + usize::from(settled.is_some()));
    text(&mut out, "begin");
    number(&mut out, begin);
    if let Some(settled) = settled {
        text(&mut out, "settled");
        number(&mut out, settled);
    }
    text(&mut out, "parents");
    array(&mut out, parents.len());
    for (partition, end, how) in parents {
        array(&mut out, 3);
        number(&mut out, *partition);
        number(&mut out, *end);
        number(&mut out, *how);
    }
    out.into()
}

/// (sequence, first offset, rows) of stored batches.
fn windows(out: &mut Vec<u8>, answers: &[(u64, u64, u32)]) {
    array(out, answers.len());
    for (sequence, first_offset, rows) in answers {
        array(out, 3);
        number(out, *sequence);
        number(out, *first_offset);
        number(out, u64::from(*rows));
    }
}

/// Number of stored batches, and (sequence, first offset, rows) of the newest.
type Stored<'a> = (u64, &'a [(u64, u64, u32)]);

/// Body of REDIRECT(sealed): that of the control plane, which names owner and children, with the version that sealed
/// the partition, and what is stored of the sender, where it is known.
pub fn sealed(body: &[u8], version: u64, stored: Option<Stored<'_>>) -> Box<[u8]> {
    let mut rest = body;
    // The order that brought it was refused if it is no map.
    let Ok(fields) = decode::read_map_len(&mut rest) else { return body.into() };
    let mut out = Vec::with_capacity(body.len() + 48 + stored.map_or(0, |(_, answers)| answers.len() * 24));
    map(&mut out, fields as usize + 1 + if stored.is_some() { 2 } else { 0 });
    out.extend_from_slice(rest);
    if let Some((count, answers)) = stored {
        text(&mut out, "stored");
        number(&mut out, count);
        text(&mut out, "answers");
        windows(&mut out, answers);
    }
    text(&mut out, "version");
    number(&mut out, version);
    out.into()
}

/// What the node needs of HELLO.
#[derive(Clone, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub struct Hello {
    pub version_min: u64,
    pub version_max: u64,
    pub cluster: Option<Vec<u8>>,
    pub history: Option<Vec<u8>>,
    pub credential: Option<String>,
    /// What the client can do.
    pub features: u64,
}

impl Hello {
    /// # Errors
    /// A sentence that names the field.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let mut hello = Self { version_min: u64::MAX, ..Self::default() };
        each_field(body, |name, value| {
            let mut value = value;
            match name {
                b"version_min" => hello.version_min = int(&mut value, "version_min")?,
                b"version_max" => hello.version_max = int(&mut value, "version_max")?,
                b"cluster" => hello.cluster = bytes_or_nil(value, "cluster")?,
                b"history" => hello.history = bytes_or_nil(value, "history")?,
                b"credential" => hello.credential = credential(value)?,
                b"features" => hello.features = int(&mut value, "features")?,
                _ => {}
            }
            Ok(())
        })?;
        if hello.version_min == u64::MAX {
            return Err("HELLO lacks version_min".into());
        }
        Ok(hello)
    }
}

/// Body of HELLO, as this node says it to others.
pub fn hello(credential: &str) -> Box<[u8]> {
    let mut out = Vec::with_capacity(128);
    map(&mut out, 4);
    text(&mut out, "version_min");
    number(&mut out, u64::from(PROTOCOL_VERSION_MIN));
    text(&mut out, "version_max");
    number(&mut out, u64::from(PROTOCOL_VERSION));
    text(&mut out, "client");
    text(&mut out, "ringfence node");
    text(&mut out, "credential");
    text(&mut out, credential);
    out.into()
}

/// Is this one whole `MessagePack` map, not nested too deep? The control plane reads its content.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_map(body: &[u8]) -> Result<(), String> {
    each_field(body, |_, _| Ok(()))
}

/// A table's content without its generation and the loads, which are hints: two tables with equal digests route alike.
pub fn table_digest(body: &[u8]) -> u64 {
    let mut digest = 0u64;
    let walked = each_field(body, |name, value| {
        if name != b"generation" && name != b"loads" {
            digest = xxhash_rust::xxh3::xxh3_64_with_seed(value, digest);
        }
        Ok(())
    });
    match walked {
        Ok(()) => digest,
        Err(_) => xxhash_rust::xxh3::xxh3_64(body),
    }
}

/// True if the table tells loads of partitions.
pub fn has_loads(body: &[u8]) -> bool {
    let mut has_loads = false;
    let walked = each_field(body, |name, value| {
        // One byte is the map of none.
        has_loads |= name == b"loads" && value.len() > 1;
        Ok(())
    });
    walked.is_ok() && has_loads
}

/// Walk a map with string keys: name and the encoded value of each field.
pub(super) fn each_field<'a>(
    body: &'a [u8],
    mut take: impl FnMut(&'a [u8], &'a [u8]) -> Result<(), String>,
) -> Result<(), String> {
    let mut rest = body;
    let fields = decode::read_map_len(&mut rest).map_err(|_| "body is not a MessagePack map".to_owned())?;
    for _ in 0..fields {
        let bytes = decode::read_str_len(&mut rest).map_err(|_| "a key of the map is not a string".to_owned())?;
        let (name, after) = rest.split_at_checked(bytes as usize).ok_or("a key is longer than the body")?;
        let value = value_len(after)
            .map(|bytes| &after[..bytes])
            .ok_or_else(|| format!("field {:?} is not sound MessagePack", String::from_utf8_lossy(name)))?;
        rest = &after[value.len()..];
        take(name, value)?;
    }
    if rest.is_empty() { Ok(()) } else { Err(format!("{} bytes follow the map", rest.len())) }
}

pub(super) fn int(value: &mut &[u8], field: &str) -> Result<u64, String> {
    decode::read_int(value).map_err(|_| format!("field {field} is not an unsigned integer"))
}

fn bytes_or_nil(mut value: &[u8], field: &str) -> Result<Option<Vec<u8>>, String> {
    if value == [0xC0] {
        return Ok(None);
    }
    decode::read_bin_len(&mut value).map_err(|_| format!("field {field} is neither bin nor nil"))?;
    Ok(Some(value.to_vec()))
}

/// What is wrong with a credential is said without it.
fn credential(mut value: &[u8]) -> Result<Option<String>, String> {
    if value == [0xC0] {
        return Ok(None);
    }
    let bytes = decode::read_str_len(&mut value).map_err(|_| "field credential is neither str nor nil".to_owned())?;
    if bytes as usize > CREDENTIAL_BYTES_MAX {
        return Err(format!("field credential has {bytes} bytes, the limit is {CREDENTIAL_BYTES_MAX}"));
    }
    let text = std::str::from_utf8(value).map_err(|_| "field credential is not UTF-8".to_owned())?;
    Ok(Some(text.to_owned()))
}

/// The topic's full name in the body of a table; empty when there is none.
pub fn table_name(body: &[u8]) -> String {
    let mut name = String::new();
    let walked = each_field(body, |field, mut value| {
        if field == b"name" && decode::read_str_len(&mut value).is_ok() {
            name = String::from_utf8_lossy(value).into_owned();
        }
        Ok(())
    });
    walked.map_or_else(|_| String::new(), |()| name)
}

// Writing into a Vec cannot fail.
pub(super) fn text(out: &mut Vec<u8>, value: &str) {
    encode::write_str(out, value).expect("a Vec grows");
}

pub(super) fn number(out: &mut Vec<u8>, value: u64) {
    encode::write_uint(out, value).expect("a Vec grows");
}

fn optional(out: &mut Vec<u8>, value: Option<u64>) {
    match value {
        Some(value) => number(out, value),
        None => encode::write_nil(out).expect("a Vec grows"),
    }
}

pub(super) fn map(out: &mut Vec<u8>, fields: usize) {
    encode::write_map_len(out, u32::try_from(fields).expect("few fields")).expect("a Vec grows");
}

pub(super) fn array(out: &mut Vec<u8>, items: usize) {
    encode::write_array_len(out, u32::try_from(items).expect("few items")).expect("a Vec grows");
}

/// A map of values that are packed already: what another program sends.
#[cfg(test)]
pub(super) fn packed_map(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    map(&mut out, fields.len());
    for (name, value) in fields {
        text(&mut out, name);
        out.extend_from_slice(value);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_wire::Code;

    #[test]
    fn hello_reads_what_it_needs_and_skips_the_rest() {
        let mut fields: Vec<(&str, &[u8])> =
            vec![("version_min", &[1]), ("new", &[0x92, 1, 2]), ("version_max", &[3]), ("cluster", &[0xC4, 1, 9])];
        let read = Hello::read(&packed_map(&fields)).unwrap();
        let expected = Hello { version_min: 1, version_max: 3, cluster: Some(vec![9]), ..Hello::default() };
        assert_eq!(read, expected);
        fields.push(("features", &[5]));
        assert_eq!(Hello::read(&packed_map(&fields)).unwrap(), Hello { features: 5, ..expected });
    }

    #[test]
    fn what_a_sealed_partition_has_is_added_to_the_installed_body() {
        let installed = packed_map(&[("owner", &[2]), ("children", &[0x92, 7, 8])]);
        let told = sealed(&installed, 3, Some((5, &[(4, 12, 3)])));
        let head = b"\x85\xA5owner\x02\xA8children\x92\x07\x08";
        assert_eq!(*told, [&head[..], b"\xA6stored\x05\xA7answers\x91\x93\x04\x0C\x03\xA7version\x03"].concat());
        let unknown = sealed(&installed, 3, None);
        assert_eq!(unknown[..], [&[0x83], &head[1..], b"\xA7version\x03"].concat());
    }

    #[test]
    fn unsound_maps_are_named() {
        let deep = [&[0x81, 0xA1, b'x'][..], &[0x91; 100]].concat();
        for body in [
            &b""[..],
            b"\xC1",
            b"\x93\x01\x02",
            b"\x81\xA4name",
            b"\xDF\xFF\xFF\xFF\xFF",
            b"\x80\x00",
            b"\x81\xA1a\xD4\x01\x00",
            b"\x81\xA1a\xC1",
            &deep,
        ] {
            assert!(check_map(body).is_err(), "{body:x?}");
        }
        assert_eq!(check_map(b"\x81\xA4name\x01"), Ok(()));
        assert!(Hello::read(b"\x81\xABversion_max\x01").unwrap_err().contains("version_min"));
    }

    #[test]
    fn a_table_digest_ignores_the_generation_and_loads_only() {
        let table = |generation: u8, version: u8, loads: &[u8]| {
            packed_map(&[("generation", &[generation]), ("version", &[version]), ("loads", loads)])
        };
        assert_eq!(table_digest(&table(1, 7, b"\x80")), table_digest(&table(2, 7, b"\x81\x01\x05")));
        assert_ne!(table_digest(&table(1, 7, b"\x80")), table_digest(&table(1, 8, b"\x80")));
    }

    #[test]
    fn a_refusal_has_the_bytes_of_the_protocol() {
        let body = refused(&Refusal::new(Code::Held, "partition 9: held").with("partition", 9));
        assert_eq!(*body, *b"\x82\xA7message\xB1partition 9: held\xA7details\x81\xA9partition\x09");
    }
}
