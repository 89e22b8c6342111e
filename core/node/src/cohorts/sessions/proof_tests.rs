use sha2::{Digest, Sha256};

use super::*;
use crate::api::member_key::KeySize;

fn numbered<const N: usize>(from: u8) -> [u8; N] {
    std::array::from_fn(|index| from + u8::try_from(index).unwrap())
}

/// The example of `docs/design/cohort_gates.md`; `tests/unit/control/state_machines/metadata/test_member_proofs.py`
/// has it, too.
#[test]
fn the_proof_of_the_page_is_that_of_this_program() {
    let key = MemberKey::read(&numbered::<32>(0)).unwrap().unwrap();
    let (cluster, credential) = (numbered(100), Sha256::digest(b"secret").into());
    let claim =
        Claim { cluster: &cluster, cohort: 0x0102_0304_0506_0708, session: 77 << 16 | 3, credential: &credential };
    let proof = mac(&key, &claim).finalize().into_bytes();
    let words: [u64; 4] = [0x8cf6_cacc_1002_4bef, 0xdb21_ed43_3422_ec44, 0x61f0_6c21_469e_b565, 0x6412_36ac_be2a_9183];
    assert_eq!(proof[..], words.map(u64::to_be_bytes).concat()[..]);
    assert!(is_proof(&key, &claim, &proof));
    for size in [0, 1, 31] {
        assert!(!is_proof(&key, &claim, &proof[..size]), "{size} bytes");
    }
}

#[test]
fn a_key_has_32_bytes_or_none_and_no_text_shows_it() {
    assert_eq!(MemberKey::read(&[]), Ok(None));
    for size in [1, 31, 33, 64] {
        assert_eq!(MemberKey::read(&vec![7; size]), Err(KeySize(size)));
    }
    assert_eq!(format!("{:?}", MemberKey::read(&[7; 32])), "Ok(Some(MemberKey))");
    assert!(KeySize(31).to_string().starts_with("a member key of 31 bytes"));
}
