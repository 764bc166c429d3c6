//! Whether all members run programs that read a command: the first one of a feature is proposed only then.

use ::membership::Membership;
use ::membership::state::State;
use ring::NodeId;

/// The newest version of the protocol that a member speaks, if a connection to its process has told it.
pub(super) type Speaks<'a> = &'a dyn Fn(NodeId) -> Option<u16>;

/// A feature that all programs must have.
#[derive(Clone, Copy)]
pub(super) struct Feature {
    /// Its name, behind "without".
    pub(super) name: &'static str,
    /// The first version of the protocol with it.
    pub(super) version: u16,
}

/// Why the members cannot have a feature yet, or some of them.
pub(super) fn not_ready(membership: &Membership, speaks: Speaks<'_>, feature: Feature) -> Option<String> {
    let here = membership.log().identity().node;
    let is_reached = |node| node == here || membership.detector().up().contains(&node);
    membership.state().and_then(|state| not_ready_in(state, here, is_reached, speaks, feature))
}

/// A member that is known to run a program without a feature.
pub(super) fn older(membership: &Membership, speaks: Speaks<'_>, feature: Feature) -> Option<String> {
    let here = membership.log().identity().node;
    let others = membership.state()?.members().iter().filter(|(node, _)| **node != here);
    others.into_iter().find_map(|(&node, record)| {
        let version = speaks(node).filter(|version| *version < feature.version)?;
        Some(too_old(&record.member.name, version, feature))
    })
}

fn too_old(name: &str, version: u16, feature: Feature) -> String {
    format!(
        "{name} runs a program without {}: update it first (its protocol version is {version}, {} is needed)",
        feature.name, feature.version
    )
}

fn not_ready_in(
    state: &State,
    here: NodeId,
    is_reached: impl Fn(NodeId) -> bool,
    speaks: Speaks<'_>,
    feature: Feature,
) -> Option<String> {
    for (&node, record) in state.members().iter().filter(|(node, _)| **node != here) {
        let name = &record.member.name;
        match speaks(node).filter(|_| is_reached(node)) {
            None => {
                return Some(format!(
                    "{name} is not reached: all members must be, to see that none runs an older program"
                ));
            }
            Some(version) if version < feature.version => return Some(too_old(name, version, feature)),
            Some(_) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use ::membership::ClusterId;
    use ring::RingSize;

    #[test]
    fn a_member_that_is_older_or_away_is_named() {
        let nodes = [("a@h", "", ""), ("b@h", "", ""), ("c@h", "", "")];
        let size = (RingSize::new(8).unwrap(), RingSize::new(128).unwrap());
        let state = State::found_by(ClusterId(7), size, nodes).unwrap();
        let new = node::peer::VERSION_CONSISTENT;
        let feature = Feature { name: "consistent bucket types", version: new };
        let why = |up: &[u16], versions: &[(u16, u16)]| {
            let speaks = |node: NodeId| versions.iter().find(|(it, _)| *it == node.0).map(|it| it.1);
            not_ready_in(&state, NodeId(0), |node| up.contains(&node.0), &speaks, feature)
        };
        assert_eq!(why(&[1, 2], &[(1, new), (2, new + 1)]), None);
        let text = why(&[1], &[(1, new), (2, new)]).unwrap();
        assert!(text.starts_with("c@h is not reached"), "{text}");
        let text = why(&[1, 2], &[(2, new)]).unwrap();
        assert!(text.starts_with("b@h is not reached"), "{text}");
        let text = why(&[1, 2], &[(1, new), (2, new - 1)]).unwrap();
        assert!(text.starts_with("c@h runs a program without consistent bucket types"), "{text}");
    }
}
