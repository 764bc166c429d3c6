//! Which backend the stores of a data folder are of: `docs/formats/backends.md`.
//!
//! Where it is annulet's own, each store's manifest says what the folder was made with, and there is no such file.
//! Where it is another, or bucket types have stores of their own, the file `backend` says which, and the same of the
//! folder. It is written before the first store is opened, and never changed.
//!
//! It is text, since it is the first thing that a person looks at who finds the folder: a line for each entry, its name
//! and its value.

use super::TypeBackends;
use backends::Kind;
use base::checksum::crc32c;
use base::disk::{self, Disk, DiskErrorKind, DiskOp, OpenMode};
use bytes::Bytes;
use engine::{Damage, Error};
use std::collections::BTreeMap;
use std::path::Path;

const FILE: &str = "backend";
const VERSION_LINE: &str = "annulet-backend";
/// Of a folder whose stores are all of one backend.
const VERSION: u32 = 1;
/// Of one where types have stores of their own, which a program that knows nothing of them must not open.
const VERSION_OF_TYPES: u32 = 2;
const BACKEND: &str = "backend";
const TYPES: &str = "types";
const CHECKSUM: &str = "crc32c";

/// A longer one is none of ours.
const BYTES_MAX: u64 = 64 << 10;

/// What a folder was made with, as a store would remember it.
pub type Metadata = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the stores of a data folder are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Founding {
    /// Those of all types that have none of their own.
    pub backend: Kind,
    /// Those of types that have.
    pub types: TypeBackends,
}

impl Founding {
    /// The first of its backends that is not annulet's own, in words.
    pub fn other_backend(&self) -> Option<String> {
        if self.backend != Kind::Annulet {
            return Some(self.backend.name().to_owned());
        }
        self.types.iter().next().map(|(name, kind)| format!("{} for buckets of type {name}", kind.name()))
    }

    /// Whether they are what a folder without the file `backend` has.
    pub fn is_plain(&self) -> bool {
        *self == Founding::default()
    }
}

/// Says of a new data folder what its stores are. Durable when it returns. Blocks.
///
/// # Panics
/// If an entry is no word, or its value more than one line.
pub fn write(
    disk: &mut dyn Disk,
    data: &Path,
    founding: &Founding,
    metadata: &Metadata,
) -> Result<(), Error> {
    disk::run(disk, DiskOp::CreateDir { path: data.to_path_buf() })?;
    Ok(disk::replace_file(disk, &data.join(FILE), Bytes::from(encode(founding, metadata)))?)
}

/// What such a file says; `None` if there is none. Blocks.
///
/// # Errors
/// [`Error::Damaged`] if its bytes are not what was written, [`Error::Format`] if a newer program wrote it, or one that
/// knows other backends.
pub fn read(disk: &mut dyn Disk, data: &Path) -> Result<Option<(Founding, Metadata)>, Error> {
    let (file, len) = match disk::open(disk, &data.join(FILE), OpenMode::Read) {
        Ok(opened) => opened,
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let bytes = disk::read(disk, file, 0, len.min(BYTES_MAX) as usize);
    disk::run(disk, DiskOp::Close { file })?;
    decode(&bytes?).map(Some)
}

/// The bytes of the file.
///
/// # Panics
/// If an entry is no word, or its value more than one line.
pub fn encode(founding: &Founding, metadata: &Metadata) -> Vec<u8> {
    let Founding { backend, types } = founding;
    let version = if types.is_empty() { VERSION } else { VERSION_OF_TYPES };
    let mut text = format!("{VERSION_LINE} {version}\n{BACKEND} {}\n", backend.name());
    if !types.is_empty() {
        text.push_str(&format!("{TYPES} {types}\n"));
    }
    let mut text = text.into_bytes();
    for (name, value) in metadata {
        assert!(
            !name.contains(&b' ') && ![&name[..], value].concat().contains(&b'\n'),
            "one word and one line"
        );
        text.extend([name, &b" "[..], value, b"\n"].concat());
    }
    let sum = crc32c(&text);
    text.extend(format!("{CHECKSUM} {sum:08x}\n").into_bytes());
    text
}

/// What they say; errors are those of [`read`].
pub fn decode(bytes: &[u8]) -> Result<(Founding, Metadata), Error> {
    let damaged = |what| Error::Damaged(Damage { file: FILE.to_owned(), offset: 0, what });
    let newer = |what: String| Error::Format { file: FILE.to_owned(), what };
    let last = bytes.strip_suffix(b"\n").and_then(|lines| lines.iter().rposition(|&byte| byte == b'\n'));
    let (text, sum) = bytes.split_at(last.map_or(0, |at| at + 1));
    if sum != format!("{CHECKSUM} {:08x}\n", crc32c(text)).as_bytes() {
        return Err(damaged("its checksum"));
    }
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let mut entries = lines.map(|line| {
        let at =
            line.iter().position(|&byte| byte == b' ').ok_or_else(|| damaged("a line that is no entry"))?;
        Ok((line[..at].to_vec(), line[at + 1..].to_vec()))
    });
    let has_types = match entries.next().transpose()? {
        Some((name, version)) if name == VERSION_LINE.as_bytes() => {
            let known = [VERSION, VERSION_OF_TYPES].map(|version| version.to_string().into_bytes());
            let is_newer = || newer(format!("version {} is newer", version.escape_ascii()));
            known.iter().position(|known| *known == version).ok_or_else(is_newer)? > 0
        }
        _ => return Err(damaged("its first line")),
    };
    let mut metadata = entries.collect::<Result<Metadata, Error>>()?;
    let name = metadata.remove(BACKEND.as_bytes()).ok_or_else(|| damaged("no backend"))?;
    let backend = std::str::from_utf8(&name).ok().and_then(Kind::named);
    let backend =
        backend.ok_or_else(|| newer(format!("the backend {} is not known", name.escape_ascii())))?;
    let types = match has_types {
        true => {
            let text = metadata.remove(TYPES.as_bytes()).ok_or_else(|| damaged("no types"))?;
            let text = String::from_utf8(text).map_err(|_| damaged("its types"))?;
            TypeBackends::recorded(&text).ok_or_else(|| newer(format!("the types {text} are not known")))?
        }
        false => TypeBackends::default(),
    };
    Ok((Founding { backend, types }, metadata))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use proptest::prelude::*;
    use ring::RingSize;

    fn metadata() -> Metadata {
        Layout::new(2, RingSize::new(64).unwrap()).metadata(0)
    }

    fn bytes() -> Vec<u8> {
        let founding = Founding { backend: Kind::Bitcask, types: TypeBackends::default() };
        encode(&founding, &metadata())
    }

    fn bytes_of_types() -> Vec<u8> {
        let types = TypeBackends::read("cache=memory,archive=bitcask").unwrap();
        encode(&Founding { backend: Kind::Annulet, types }, &metadata())
    }

    #[test]
    fn its_bytes_stay_what_they_are() {
        let of_folder = "founded_with 64\nprefixes 1024\nshard 0\nshards 2\n";
        for (bytes, version, backends, sum, backend, types) in [
            (bytes(), 1, "backend bitcask\n", "4178add5", Kind::Bitcask, ""),
            (
                bytes_of_types(),
                2,
                "backend annulet\ntypes archive=bitcask,cache=memory\n",
                "03a7482d",
                Kind::Annulet,
                "archive=bitcask,cache=memory",
            ),
        ] {
            let text = format!("annulet-backend {version}\n{backends}{of_folder}crc32c {sum}\n");
            assert_eq!(std::str::from_utf8(&bytes).unwrap(), text);
            let (founding, metadata) = decode(&bytes).unwrap();
            assert_eq!((founding.backend, &*founding.types.to_string()), (backend, types));
            assert!(!founding.is_plain());
            assert_eq!(Layout::of_metadata(&metadata).unwrap().shards, 2);
        }
    }

    #[test]
    fn what_a_newer_program_wrote_is_told_from_damage() {
        let with = |from: &str, to: &str| {
            let bytes = if from.contains("types") { bytes_of_types() } else { bytes() };
            let text = String::from_utf8(bytes).unwrap().replace(from, to);
            let text = &text[..text.rfind(CHECKSUM).unwrap()];
            format!("{text}{CHECKSUM} {:08x}\n", crc32c(text.as_bytes())).into_bytes()
        };
        for (from, to) in [
            ("annulet-backend 1", "annulet-backend 3"),
            ("bitcask", "tape"),
            ("types archive=bitcask", "types archive=tape"),
        ] {
            assert!(matches!(decode(&with(from, to)), Err(Error::Format { .. })), "{to}");
        }
        for (from, to) in [
            ("annulet-backend", "annulet"),
            ("backend bitcask", "back bitcask"),
            ("shards 2", "shards"),
            ("types archive=bitcask,cache=memory\n", ""),
        ] {
            assert!(matches!(decode(&with(from, to)), Err(Error::Damaged(_))), "{to}");
        }
    }

    proptest! {
        #[test]
        fn no_other_bytes_are_taken(at in 0usize..200, byte: u8, other in prop::collection::vec(any::<u8>(), 0..300)) {
            for mut changed in [bytes(), bytes_of_types()] {
                let at = at % changed.len();
                prop_assert!(decode(&changed[..at]).is_err());
                changed[at] = if changed[at] == byte { !byte } else { byte };
                prop_assert!(decode(&changed).is_err());
            }
            prop_assert!(decode(&other).is_err());
        }
    }
}
