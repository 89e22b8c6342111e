//! Bodies of watches; `native/cluster_messages.py` has their definition.

use rmp::{decode, encode};

use crate::codec::pack::{array, each_field, int, map, number, text};

/// What `WATCH_OPEN` and `WATCH_CLOSE` say.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub session: Option<[u8; 16]>,
    pub topic: Option<String>,
    pub prefix: Option<String>,
    pub held: u64,
}

impl Wanted {
    /// # Errors
    /// A sentence that names the field.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let mut wanted = Self::default();
        each_field(body, |name, mut value| {
            match name {
                b"session" => wanted.session = session(value),
                b"topic" => wanted.topic = Some(string(value, "topic")?),
                b"prefix" => wanted.prefix = Some(string(value, "prefix")?),
                b"held" => wanted.held = int(&mut value, "held")?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(wanted)
    }
}

fn session(mut value: &[u8]) -> Option<[u8; 16]> {
    decode::read_bin_len(&mut value).ok()?;
    value.try_into().ok()
}

fn string(mut value: &[u8], field: &str) -> Result<String, String> {
    decode::read_str_len(&mut value).map_err(|_| format!("field {field} is not a string"))?;
    let text = std::str::from_utf8(value).map_err(|_| format!("field {field} is not UTF-8"))?;
    Ok(text.to_owned())
}

/// What one `WATCH_UPDATE` says besides session and controller.
#[derive(Default)]
pub struct News<'a> {
    /// The body of the table, as the control plane made it.
    pub table: Option<&'a [u8]>,
    pub deleted: bool,
    pub topics: Option<&'a [(u64, String)]>,
    pub gone: Option<&'a [u64]>,
    pub whole: bool,
    pub more: bool,
}

/// Body of `WATCH_UPDATE`. `controller` is an encoded map.
pub fn update(session: &[u8; 16], controller: &[u8], news: &News<'_>) -> Box<[u8]> {
    let flags = [("deleted", news.deleted), ("whole", news.whole), ("more", news.more)];
    let present = [news.table.is_some(), news.topics.is_some(), news.gone.is_some()];
    let fields = 2 + present.iter().chain(flags.iter().map(|(_, is_set)| is_set)).filter(|is_there| **is_there).count();
    let bytes = news.table.map_or(0, <[u8]>::len) + news.topics.map_or(0, |topics| topics.len() * 64);
    let mut out = Vec::with_capacity(96 + controller.len() + bytes);
    map(&mut out, fields);
    text(&mut out, "session");
    encode::write_bin(&mut out, session).expect("a Vec grows");
    text(&mut out, "controller");
    out.extend_from_slice(controller);
    if let Some(table) = news.table {
        text(&mut out, "table");
        out.extend_from_slice(table);
    }
    if let Some(topics) = news.topics {
        text(&mut out, "topics");
        array(&mut out, topics.len());
        for (topic, name) in topics {
            array(&mut out, 2);
            number(&mut out, *topic);
            text(&mut out, name);
        }
    }
    if let Some(gone) = news.gone {
        text(&mut out, "gone");
        array(&mut out, gone.len());
        for topic in gone {
            number(&mut out, *topic);
        }
    }
    for (name, _) in flags.iter().filter(|(_, is_set)| *is_set) {
        text(&mut out, name);
        encode::write_bool(&mut out, true).expect("a Vec grows");
    }
    out.into()
}

/// The controller of a node that knows of none.
pub fn no_controller() -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    map(&mut out, 3);
    text(&mut out, "node");
    number(&mut out, 0);
    text(&mut out, "addresses");
    array(&mut out, 0);
    text(&mut out, "http");
    text(&mut out, "");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_has_what_there_is_to_tell() {
        let head = [&b"\xA7session\xC4\x10"[..], &[7; 16], b"\xAAcontroller\x80"].concat();
        let bare = update(&[7; 16], &[0x80], &News::default());
        assert_eq!(*bare, [&[0x82], &head[..]].concat());
        let table = update(&[7; 16], &[0x80], &News { table: Some(&[0x80]), ..News::default() });
        assert_eq!(*table, [&[0x83], &head[..], b"\xA5table\x80"].concat());
        let topics = [(5, "a/b".to_owned())];
        let news = News { topics: Some(&topics), gone: Some(&[9]), whole: true, more: true, ..News::default() };
        let told = update(&[7; 16], &[0x80], &news);
        let tail = b"\xA6topics\x91\x92\x05\xA3a/b\xA4gone\x91\x09\xA5whole\xC3\xA4more\xC3";
        assert_eq!(*told, [&[0x86], &head[..], tail].concat());
    }

    #[test]
    fn a_request_is_read_or_refused_by_field() {
        let session = [&b"\xA7session\xC4\x10"[..], &[7; 16]].concat();
        let sound = [&[0x83], &session[..], b"\xA5topic\xA1x\xA4held\x09"].concat();
        let expected = Wanted { session: Some([7; 16]), topic: Some("x".into()), held: 9, ..Wanted::default() };
        assert_eq!(Wanted::read(&sound).unwrap(), expected);
        assert_eq!(Wanted::read(b"\x81\xA7session\xC4\x01\x07").unwrap().session, None);
        assert!(Wanted::read(b"\x81\xA5topic\x05").unwrap_err().contains("topic"));
        assert!(Wanted::read(b"\x81\xA6prefix\xC0").unwrap_err().contains("prefix"));
        assert!(Wanted::read(b"\x81\xA4held\xA1x").unwrap_err().contains("held"));
    }
}
