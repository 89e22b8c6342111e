//! Bodies of `STAGED_LIST` and of its answer; `native/layout_messages.py` has their definition.

use rmp::decode;

use crate::api::order::Token;
use crate::codec::pack::{array, each_field, int, map, number, text};

/// As many as a COMMIT may name, those of rows that were staged again among them.
pub const TOKENS_MAX: usize = 16_384 + 64;

/// Which staged batches are asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub scope: u64,
    pub epoch: u64,
    pub tokens: Vec<Token>,
    /// Records above this one.
    pub after: u64,
}

impl Wanted {
    /// # Errors
    /// A sentence that names the field.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let mut wanted = Self::default();
        each_field(body, |name, mut value| {
            match name {
                b"scope" => wanted.scope = int(&mut value, "scope")?,
                b"epoch" => wanted.epoch = int(&mut value, "epoch")?,
                b"after" => wanted.after = int(&mut value, "after")?,
                b"tokens" => wanted.tokens = tokens(value)?,
                _ => {}
            }
            Ok(())
        })?;
        if wanted.scope == 0 || wanted.epoch == 0 || wanted.tokens.is_empty() {
            return Err("STAGED_LIST lacks scope, epoch or tokens".into());
        }
        Ok(wanted)
    }
}

fn tokens(mut rest: &[u8]) -> Result<Vec<Token>, String> {
    let count = decode::read_array_len(&mut rest).map_err(|_| "field tokens is not an array".to_owned())? as usize;
    if count > TOKENS_MAX {
        return Err(format!("field tokens has {count} tokens, the limit is {TOKENS_MAX}"));
    }
    let mut tokens = Vec::with_capacity(count);
    for _ in 0..count {
        let what = "a token is not bin of 16 bytes";
        let bytes = decode::read_bin_len(&mut rest).map_err(|_| what)?;
        let (token, after) = rest.split_at_checked(bytes as usize).ok_or(what)?;
        tokens.push(Token::try_from(token).map_err(|_| what)?);
        rest = after;
    }
    Ok(tokens)
}

/// Body of the answer: (record, rows, index of the token) of each batch.
pub fn listed(batches: &[(u64, u32, usize)], more: bool, sealed_version: u64) -> Box<[u8]> {
    let mut out = Vec::with_capacity(48 + batches.len() * 16);
    map(&mut out, 3);
    text(&mut out, "batches");
    array(&mut out, batches.len());
    for (record, rows, token) in batches {
        array(&mut out, 3);
        number(&mut out, *record);
        number(&mut out, u64::from(*rows));
        number(&mut out, *token as u64);
    }
    text(&mut out, "more");
    rmp::encode::write_bool(&mut out, more).expect("a Vec grows");
    text(&mut out, "sealed_version");
    number(&mut out, sealed_version);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::pack::packed_map;

    #[test]
    fn a_request_is_read_or_refused_by_field() {
        let token = [&[0x91, 0xC4, 16][..], &[7; 16]].concat();
        let sound: Vec<(&str, &[u8])> = vec![("scope", &[5]), ("epoch", &[8]), ("tokens", &token), ("later", &[0xC0])];
        let read = Wanted::read(&packed_map(&sound)).unwrap();
        assert_eq!(read, Wanted { scope: 5, epoch: 8, tokens: vec![[7; 16]], after: 0 });
        let short = [&[0x91, 0xC4, 15][..], &[7; 15]].concat();
        let many = [&[0xDC, 0x40, 0x41][..], &[0xC4, 0].repeat(TOKENS_MAX + 1)].concat();
        for (field, value) in [("scope", &[0xC0][..]), ("tokens", &[5]), ("tokens", &short), ("tokens", &many)] {
            let mut fields = sound.clone();
            fields.retain(|one| one.0 != field);
            fields.push((field, value));
            let why = Wanted::read(&packed_map(&fields)).unwrap_err();
            assert!(why.contains(field.trim_end_matches('s')), "{why}");
        }
        assert!(Wanted::read(&packed_map(&sound[..2])).unwrap_err().contains("lacks"));
    }

    #[test]
    fn an_answer_has_the_bytes_of_the_protocol() {
        let told = listed(&[(7, 3, 0), (9, 120, 1)], false, 2);
        let batches = b"\x83\xA7batches\x92\x93\x07\x03\x00\x93\x09\x78\x01";
        assert_eq!(*told, [&batches[..], b"\xA4more\xC2\xAEsealed_version\x02"].concat());
    }
}
