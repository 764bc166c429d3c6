//! The name in a client certificate: the common name of its subject.
//!
//! A subject is a row of attributes, each with a type. Only an attribute of the type `commonName` names a user. A
//! subject with two of them names nobody: two readers could take different ones.

/// The bytes of the object identifier of `commonName`, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// One attribute of a subject.
#[derive(Clone, Copy, Debug)]
pub struct Attribute<'a> {
    /// The bytes of its object identifier.
    pub oid: &'a [u8],
    /// Its text.
    pub value: &'a [u8],
}

/// The common name of a subject; none without exactly one, or if it is empty.
pub fn common_name<'a>(subject: impl IntoIterator<Item = Attribute<'a>>) -> Option<&'a [u8]> {
    let is_name = |attribute: &Attribute<'_>| attribute.oid == COMMON_NAME || base::planted!(CnFromAnyRdn);
    let mut names = subject.into_iter().filter(is_name).map(|attribute| attribute.value);
    let name = names.next().filter(|name| !name.is_empty())?;
    (names.next().is_none() || base::planted!(CnFromAnyRdn)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0A];

    #[test]
    fn only_one_common_name_names_a_user() {
        let organization = Attribute { oid: ORGANIZATION, value: b"admin" };
        let alice = Attribute { oid: COMMON_NAME, value: b"alice" };
        let bob = Attribute { oid: COMMON_NAME, value: b"bob" };
        let empty = Attribute { oid: COMMON_NAME, value: b"" };
        assert_eq!(common_name([organization, alice]), Some(&b"alice"[..]));
        assert_eq!(common_name([alice, organization]), Some(&b"alice"[..]));
        assert_eq!(common_name([organization]), None);
        assert_eq!(common_name([alice, bob]), None);
        assert_eq!(common_name([empty]), None);
        assert_eq!(common_name([]), None);
    }
}
