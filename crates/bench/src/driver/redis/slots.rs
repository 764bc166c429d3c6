//! Which server of a Redis Cluster has a key: CRC-16 of the key, or of its hash tag, modulo 16,384 slots.

use super::resp::Value;
use std::net::{IpAddr, SocketAddr};

/// Slots of every cluster.
pub const SLOTS: usize = 16_384;

/// Servers of a cluster at most: Redis recommends no more.
pub const NODES_MAX: usize = 1000;

/// The slot of a key, which comes in pieces.
pub fn slot(key: &[&[u8]]) -> u16 {
    let bytes = || key.iter().flat_map(|piece| piece.iter().copied());
    let (begin, len) = tag(bytes()).unwrap_or((0, usize::MAX));
    crc16(bytes().skip(begin).take(len)) % SLOTS as u16
}

/// Where the hash tag is, and how long: what is between the first `{` and the `}` that follows, if that is anything.
fn tag(mut key: impl Iterator<Item = u8>) -> Option<(usize, usize)> {
    let begin = 1 + key.position(|byte| byte == b'{')?;
    let len = key.position(|byte| byte == b'}')?;
    (len > 0).then_some((begin, len))
}

/// CRC-16/XMODEM, as the specification has it: polynomial 0x1021, from 0.
fn crc16(bytes: impl Iterator<Item = u8>) -> u16 {
    bytes.fold(0, |crc, byte| crc << 8 ^ CRCS[usize::from((crc >> 8) as u8 ^ byte)])
}

const CRCS: [u16; 256] = {
    let mut all = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut crc, mut bit) = ((at as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        all[at] = crc;
        at += 1;
    }
    all
};

/// Slots from one to another, and who has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
    /// Their master.
    pub master: SocketAddr,
}

/// What `CLUSTER SLOTS` was answered with, by a server that was asked at `asked`.
pub fn shares(answer: &Value<'_>, asked: IpAddr) -> Result<Vec<Share>, String> {
    let strange = || "a map of slots that cannot be read".to_owned();
    let all = answer.elements().ok_or_else(strange)?;
    let shares = all.iter().map(|share| {
        let [first, last, master, ..] = share.elements().ok_or_else(strange)? else { return Err(strange()) };
        let slot = |value: &Value<'_>| value.number().filter(|slot| *slot < SLOTS as u64).ok_or_else(strange);
        let [ip, port, ..] = master.elements().ok_or_else(strange)? else { return Err(strange()) };
        let port = port.number().and_then(|port| u16::try_from(port).ok()).ok_or_else(strange)?;
        let (first, last) = (slot(first)? as u16, slot(last)? as u16);
        // No name: it is where it was asked.
        let ip = match ip.text().unwrap_or_default() {
            "" => asked,
            text => text.parse().map_err(|_| format!("{text:?} in the map of slots is no address"))?,
        };
        Ok(Share { first, last, master: SocketAddr::new(ip, port) })
    });
    shares.collect()
}

/// Where an error sends a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirection {
    /// The slot is there from now on.
    Moved(SocketAddr),
    /// This key is there already, while its slot moves.
    Ask(SocketAddr),
}

/// Reads `MOVED 3999 127.0.0.1:6381`, or `ASK` and the same; `None` if it is another error.
pub fn redirection(text: &str, asked: IpAddr) -> Option<Redirection> {
    let (word, rest) = text.split_once(' ')?;
    let kind = match word {
        "MOVED" => Redirection::Moved,
        "ASK" => Redirection::Ask,
        _ => return None,
    };
    let (ip, port) = rest.split_once(' ')?.1.rsplit_once(':')?;
    let ip = if ip.is_empty() { asked } else { ip.parse().ok()? };
    Some(kind(SocketAddr::new(ip, port.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::redis::resp;
    use proptest::prelude::*;

    const GOLDEN: [(&str, u16); 9] = [
        ("foo", 12_182),
        ("bench:000000000007", 10_366),
        ("{user1000}.following", 3443),
        ("user1000", 3443),
        ("foo{}{bar}", 8363),
        ("foo{{bar}}zap", 4015),
        ("foo{bar}{zap}", 5061),
        ("{bar", 4015),
        ("a}b{c}d", 7365),
    ];

    #[test]
    fn slots_are_those_of_the_specification() {
        // The specification's own value, and what CLUSTER KEYSLOT of a Redis 7.0.15 said.
        assert_eq!(crc16(b"123456789".iter().copied()), 0x31C3);
        for (key, expected) in GOLDEN {
            assert_eq!(slot(&[key.as_bytes()]), expected, "{key}");
            for cut in 0..key.len() {
                assert_eq!(slot(&[&key.as_bytes()[..cut], &key.as_bytes()[cut..]]), expected, "{key}");
            }
        }
    }

    #[test]
    fn a_map_of_slots_is_read() {
        let answer = b"*2\r\n*3\r\n:0\r\n:8191\r\n*3\r\n$9\r\n127.0.0.1\r\n:7001\r\n$1\r\na\r\n\
                       *4\r\n:8192\r\n:16383\r\n*2\r\n$0\r\n\r\n:7002\r\n*2\r\n$3\r\n::1\r\n:7003\r\n";
        let asked: IpAddr = "10.0.0.1".parse().unwrap();
        let expected = [(0, 8191, "127.0.0.1:7001"), (8192, 16_383, "10.0.0.1:7002")];
        let expected =
            expected.map(|(first, last, master)| Share { first, last, master: master.parse().unwrap() });
        assert_eq!(shares(&resp::parse(answer).unwrap(), asked), Ok(expected.to_vec()));
        for wrong in ["*1\r\n:1\r\n", "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$0\r\n\r\n:1\r\n", "+OK\r\n"] {
            shares(&resp::parse(wrong.as_bytes()).unwrap(), asked).unwrap_err();
        }
    }

    #[test]
    fn redirections_are_read() {
        let asked: IpAddr = "10.0.0.1".parse().unwrap();
        let to = |text: &str| text.parse().unwrap();
        let read = |text| redirection(text, asked);
        assert_eq!(read("MOVED 3999 127.0.0.1:6381"), Some(Redirection::Moved(to("127.0.0.1:6381"))));
        assert_eq!(read("ASK 3999 ::1:6381"), Some(Redirection::Ask(to("[::1]:6381"))));
        assert_eq!(read("MOVED 3999 :6381"), Some(Redirection::Moved(to("10.0.0.1:6381"))));
        for other in ["ERR no", "MOVED", "MOVED 1", "MOVED 1 a:b", "MOVED 1 1.2.3.4:70000", "ASK 1 host:80"] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn any_error_is_a_redirection_or_none(text in "(MOVED|ASK)? ?[0-9]{0,6} ?[0-9.:a-z\\[\\]]{0,20}") {
            let asked: IpAddr = "10.0.0.1".parse().unwrap();
            prop_assert_eq!(redirection(&text, asked).is_some() && !text.contains(':'), false);
        }
    }
}
