use super::*;

fn name(name: &str) -> Name {
    Name::create(name.as_bytes()).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One record of each shape, and its bytes.
fn golden() -> Vec<(Slot, &'static str)> {
    let groups = || BTreeSet::from([name("g"), name("h")]);
    let options = || Options::from([("o".into(), "v".into())]);
    let user =
        |credential| Slot::User(User { name: name("u"), credential, groups: groups(), options: options() });
    let source = |user, net: &str, method| {
        Slot::Source(Source { user, net: net.parse().unwrap(), method, options: Options::new() })
    };
    let grant = |role, resource| Slot::Grant(Grant { role, resource, permissions: Permissions(0x0102) });
    let imported = Credential::RiakPbkdf2 { rounds: 65_536, salt: "s".into(), hash: "h".into() };
    vec![
        (Slot::Settings(Settings { mode: Mode::On, ciphers: "c".into() }), "0100010163"),
        (Slot::Settings(Settings { mode: Mode::Permissive, ciphers: "".into() }), "01000200"),
        (user(None), "0101017500020167016801016f0176"),
        (user(Some(Credential::Argon2id("$a".into()))), "010101750102246102016701 6801016f0176"),
        (user(Some(imported)), "010101750280800401730168020167016801016f0176"),
        (
            Slot::Group(Group { name: name("g"), groups: BTreeSet::new(), options: Options::new() }),
            "010201670000",
        ),
        (source(SourceUser::All, "10.0.0.0/8", Method::Trust), "0103000408 0a000000 00 00"),
        (
            source(SourceUser::User(name("u")), "2001:db8::/32", Method::Certificate),
            "0103010175 0620 20010db8000000000000000000000000 02 00",
        ),
        (source(SourceUser::All, "127.0.0.1/32", Method::Password), "0103000420 7f000001 01 00"),
        (grant(Role::All, Resource::Any), "01040000 0201000000000000"),
        (grant(Role::User(name("u")), Resource::Type("t".into())), "0104010175 010174 0201000000000000"),
        (
            grant(Role::Group(name("g")), Resource::Bucket("t".into(), "b".into())),
            "0104020167 0201740162 0201000000000000",
        ),
    ]
}

#[test]
fn golden_bytes() {
    for (slot, bytes) in golden() {
        let encoded = slot.encode();
        assert_eq!(hex(&encoded), bytes.replace(' ', ""), "{slot:?}");
        assert_eq!(Slot::read(encoded), Ok(slot));
    }
}

#[test]
fn a_record_names_itself() {
    for (slot, _) in golden() {
        let key = slot.key().encode();
        assert!(slot.encode()[1..].starts_with(&key));
        assert_eq!(SlotKey::read(key), Ok(slot.key()));
    }
}

#[test]
fn damaged_records_are_refused() {
    for (slot, _) in golden() {
        let bytes = slot.encode();
        for len in 0..bytes.len() {
            assert!(Slot::read(bytes.slice(..len)).is_err(), "{slot:?} cut at {len}");
        }
        let mut more = bytes.to_vec();
        more.push(0);
        assert!(Slot::read(more.into()).is_err(), "{slot:?} and more");
    }
    assert_eq!(Slot::read(Bytes::from_static(&[2, 0, 0, 0])), Err(Error::Version(2)));
}

#[test]
fn values_out_of_bounds_are_refused() {
    for (bytes, text) in [
        (&b"\x01\x05"[..], "an unknown kind of record"),
        (b"\x01\x00\x03\x00", "an unknown mode of security"),
        (b"\x01\x01\x01U\x00\x00\x00", "no name of a user or a group"),
        (b"\x01\x01\x03all\x00\x00\x00", "no name of a user or a group"),
        (b"\x01\x01\x01u\x01\x00\x00\x00", "an empty verifier"),
        (b"\x01\x01\x01u\x02\x00\x01s\x01h\x00\x00", "rounds of a hash out of bounds"),
        (b"\x01\x01\x01u\x00\x02\x01h\x01g\x00", "groups out of order"),
        (b"\x01\x01\x01u\x00\x41", "too many of them"),
        (b"\x01\x03\x00\x04\x21\x0a\x00\x00\x00\x00\x00", "a prefix longer than its address"),
        (b"\x01\x03\x00\x04\x08\x0a\x01\x00\x00\x00\x00", "a network that is not normal"),
        (b"\x01\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "a grant of nothing"),
        (b"\x01\x04\x00\x01\x00\x01\x00\x00\x00\x00\x00\x00\x00", "an empty name in a grant"),
    ] {
        assert_eq!(Slot::read(Bytes::from_static(bytes)), Err(Malformed(text).into()));
    }
}
