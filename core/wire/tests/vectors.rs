//! The byte vectors that Rust, Cython and Python share: each opens here, and sealing its fields gives the same bytes.

use ringfence_wire::{AnswerHeader, Opcode, RequestHeader, Status, crc_of};
use serde_json::Value;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn vectors() -> serde_json::Map<String, Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors.json");
    let text = std::fs::read_to_string(path).expect("docs/vectors.json is committed");
    serde_json::from_str::<Value>(&text).unwrap().as_object().unwrap().clone()
}

fn check(name: &str, vector: &Value) -> Opcode {
    let header: [u8; 128] = bytes(vector["header"].as_str().unwrap()).try_into().unwrap();
    let body = bytes(vector["body"].as_str().unwrap());
    let field = |key: &str| vector["fields"][key].as_u64().unwrap_or(0);
    let (opcode, body_bytes, body_crc) = if vector["kind"] == "request" {
        let opened = RequestHeader::open(&header).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(opened.seal(), header, "{name}");
        assert_eq!((opened.sequence, opened.send), (field("sequence"), field("send")), "{name}");
        assert_eq!(u64::from(opened.extension_bytes), field("extension_bytes"), "{name}");
        (opened.opcode, opened.body_bytes, opened.body_crc)
    } else {
        let opened = AnswerHeader::open(&header).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(opened.seal(), header, "{name}");
        assert_eq!((opened.first_offset, opened.end_offset), (field("first_offset"), field("end_offset")), "{name}");
        assert!(Status::from_number(opened.status).is_some(), "{name}");
        (opened.opcode, opened.body_bytes, opened.body_crc)
    };
    assert_eq!((body_bytes as usize, body_crc), (body.len(), crc_of(&body)), "{name}");
    let opcode = Opcode::from_number(opcode).unwrap_or_else(|| panic!("{name}: opcode {opcode}"));
    assert_eq!(opcode.name(), vector["opcode"].as_str().unwrap(), "{name}");
    opcode
}

#[test]
fn every_vector_opens_and_seals_to_the_same_bytes_and_every_opcode_has_one() {
    let mut seen: Vec<Opcode> = vectors().iter().map(|(name, vector)| check(name, vector)).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, Opcode::ALL);
}
