//! Detectors on a network that loses, delays and cuts, from one seed.

use super::datagram::{Body, Datagram};
use super::*;
use base::rng::SplitMix64;

const SECOND: u64 = 1_000_000_000;
const CLUSTER: ClusterId = ClusterId(0xC1);

/// A dead member is known to be dead by all after this long, up to 50 members and one datagram in twenty lost: a round
/// of probes, the time of a suspect, and the steps of infection.
const NOTICED_WITHIN: u64 = 30;

struct Process {
    detector: Detector,
    node: NodeId,
    paused: bool,
    waiting: Vec<(usize, Bytes)>,
    said: Vec<Output>,
    sent: (u64, u64),
}

struct Net {
    now: Monotonic,
    processes: Vec<Option<Process>>,
    /// Where a node's datagrams go.
    address: BTreeMap<NodeId, usize>,
    flying: BTreeMap<(Monotonic, u64), (usize, usize, Bytes)>,
    sequence: u64,
    cuts: BTreeSet<(NodeId, NodeId)>,
    lost_of_thousand: u64,
    rng: SplitMix64,
}

impl Net {
    fn new(seed: u64, nodes: u16) -> Net {
        let mut net = Net {
            now: Monotonic(SECOND),
            processes: Vec::new(),
            address: BTreeMap::new(),
            flying: BTreeMap::new(),
            sequence: 0,
            cuts: BTreeSet::new(),
            lost_of_thousand: 0,
            rng: SplitMix64::new(seed),
        };
        let members: BTreeSet<NodeId> = (0..nodes).map(NodeId).collect();
        for node in 0..nodes {
            net.start(NodeId(node), 1, CLUSTER, &members);
        }
        net
    }

    fn start(&mut self, node: NodeId, starts: u32, cluster: ClusterId, members: &BTreeSet<NodeId>) -> usize {
        let rng = Box::new(SplitMix64::new(self.rng.next_u64()));
        let start = self.rng.next_u64();
        let detector = Detector::new(cluster, node, starts, start, rng, self.now);
        let (waiting, said) = (Vec::new(), Vec::new());
        let at = self.processes.len();
        self.processes.push(Some(Process { detector, node, paused: false, waiting, said, sent: (0, 0) }));
        self.address.insert(node, at);
        self.input(at, at, Input::Members(members.clone()));
        at
    }

    fn input(&mut self, at: usize, from: usize, input: Input) {
        let Some(process) = &mut self.processes[at] else { return };
        let mut out = Vec::new();
        process.detector.step(input, self.now, &mut out);
        for output in out {
            match output {
                Output::Send { to, datagram } => {
                    if let Some(&to) = self.address.get(&to) {
                        self.send(at, to, datagram);
                    }
                }
                Output::Reply(datagram) => self.send(at, from, datagram),
                other => self.processes[at].as_mut().unwrap().said.push(other),
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, datagram: Bytes) {
        assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
        let sender = self.processes[from].as_mut().unwrap();
        sender.sent.0 += 1;
        sender.sent.1 += datagram.len() as u64;
        let source = sender.node;
        let Some(target) = self.processes[to].as_ref().map(|process| process.node) else { return };
        if self.cuts.contains(&(source, target)) || self.rng.chance(self.lost_of_thousand, 1_000) {
            return;
        }
        // One in fifty comes twice.
        for _ in 0..if self.rng.chance(1, 50) { 2 } else { 1 } {
            self.sequence += 1;
            let at = Monotonic(self.now.0 + 100_000 + self.rng.below(50_000_000));
            self.flying.insert((at, self.sequence), (from, to, datagram.clone()));
        }
    }

    fn run(&mut self, seconds: u64) {
        let end = Monotonic(self.now.0 + seconds * SECOND);
        loop {
            let awake = self.processes.iter().enumerate().filter_map(|(at, process)| {
                let process = process.as_ref().filter(|process| !process.paused)?;
                Some((process.detector.next_timer().max(self.now), at))
            });
            let timer = awake.min();
            let arrival = self.flying.first_key_value().map(|(&(at, _), _)| at);
            let next = timer.map(|timer| timer.0).into_iter().chain(arrival).min();
            let Some(next) = next.filter(|&next| next <= end) else { break };
            self.now = next;
            if arrival == Some(next) {
                let (_, (from, to, datagram)) = self.flying.pop_first().unwrap();
                match &mut self.processes[to] {
                    Some(process) if process.paused => process.waiting.push((from, datagram)),
                    Some(_) => self.input(to, from, Input::Datagram(datagram)),
                    None => {}
                }
            } else if let Some((_, at)) = timer {
                self.input(at, at, Input::Tick);
            }
        }
        self.now = end;
    }

    fn resume(&mut self, at: usize) {
        let Some(process) = &mut self.processes[at] else { return };
        process.paused = false;
        for (from, datagram) in std::mem::take(&mut process.waiting) {
            self.input(at, from, Input::Datagram(datagram));
        }
    }

    fn live(&self) -> BTreeSet<NodeId> {
        self.processes.iter().flatten().map(|process| process.node).collect()
    }

    /// What is wrong in the live processes' views, for a message.
    fn wrong(&self) -> Vec<String> {
        let live = self.live();
        let wrong = |process: &Process| {
            let expected: BTreeSet<NodeId> =
                live.iter().copied().filter(|&node| node != process.node).collect();
            let up = process.detector.up();
            (*up != expected).then(|| format!("{} sees {up:?}", process.node))
        };
        self.processes.iter().flatten().filter_map(wrong).collect()
    }

    fn assert_right(&self, context: &str) {
        let wrong = self.wrong();
        assert!(wrong.is_empty(), "{context}: {wrong:?}");
    }

    fn told(&self, at: usize) -> Vec<Refusal> {
        let said = &self.processes[at].as_ref().unwrap().said;
        said.iter()
            .filter_map(|output| match output {
                Output::Told { refusal, .. } => Some(*refusal),
                _ => None,
            })
            .collect()
    }

    fn refused(&self, node: NodeId) -> Vec<Refusal> {
        let said = self.processes.iter().flatten().flat_map(|process| &process.said);
        said.filter_map(|output| match output {
            Output::Refused { from, refusal } if from.node == node => Some(*refusal),
            _ => None,
        })
        .collect()
    }
}

#[test]
fn the_dead_are_noticed_and_the_living_are_not() {
    for seed in 0..40 {
        let mut rng = SplitMix64::new(seed);
        let nodes = u16::try_from(3 + rng.below(48)).unwrap();
        let mut net = Net::new(seed, nodes);
        net.lost_of_thousand = rng.below(51);
        net.run(20);
        let mut dead = Vec::new();
        for _ in 0..=rng.below(u64::from(nodes) / 3) {
            let at = usize::try_from(rng.below(u64::from(nodes))).unwrap();
            dead.extend(net.processes[at].take().map(|process| process.node));
        }
        net.run(NOTICED_WITHIN);
        for process in net.processes.iter().flatten() {
            let seen: Vec<&NodeId> =
                dead.iter().filter(|node| process.detector.up().contains(node)).collect();
            assert!(seen.is_empty(), "seed {seed}, {nodes} nodes: {} still sees {seen:?}", process.node);
        }
        net.lost_of_thousand = 0;
        net.run(20);
        net.assert_right(&format!("seed {seed}, {nodes} nodes"));
    }
}

#[test]
fn nobody_is_lost_for_good() {
    for seed in 0..30 {
        let mut rng = SplitMix64::new(seed ^ 0x5EED);
        let nodes = u16::try_from(3 + rng.below(20)).unwrap();
        let mut net = Net::new(seed, nodes);
        let members = net.live();
        for _ in 0..12 {
            net.lost_of_thousand = rng.below(300);
            let at = usize::try_from(rng.below(net.processes.len() as u64)).unwrap();
            match rng.below(6) {
                0 => net.processes[at].iter_mut().for_each(|process| process.paused = true),
                1 => net.resume(at),
                2 => {
                    let draw = |rng: &mut SplitMix64| NodeId(u16::try_from(rng.below(nodes.into())).unwrap());
                    let cut = (draw(&mut rng), draw(&mut rng));
                    net.cuts.insert(cut);
                }
                3 => net.cuts.clear(),
                4 if net.processes[at].is_some() => {
                    let node = net.processes[at].take().unwrap().node;
                    net.run(rng.below(8));
                    // Half of them come back from a folder whose count of starts is behind.
                    net.start(node, u32::try_from(rng.below(2) * 5).unwrap(), CLUSTER, &members);
                }
                _ => {
                    let half: Vec<NodeId> = members.iter().copied().filter(|_| rng.chance(1, 2)).collect();
                    for &one in &members {
                        for &other in half.iter().filter(|_| !half.contains(&one)) {
                            net.cuts.extend([(one, other), (other, one)]);
                        }
                    }
                }
            }
            net.run(1 + rng.below(30));
        }
        net.cuts.clear();
        net.lost_of_thousand = 0;
        (0..net.processes.len()).for_each(|at| net.resume(at));
        net.run(120);
        assert_eq!(net.live(), members);
        net.assert_right(&format!("seed {seed}, {nodes} nodes"));
    }
}

#[test]
fn a_node_that_everybody_forgot_comes_back() {
    let mut net = Net::new(7, 4);
    net.run(10);
    for other in 1..4 {
        net.cuts.extend([(NodeId(0), NodeId(other)), (NodeId(other), NodeId(0))]);
    }
    net.run(REMEMBER_DOWN.as_secs() + 60);
    assert!(net.processes[0].as_ref().unwrap().detector.up().is_empty());
    net.cuts.clear();
    net.run(60);
    net.assert_right("healed");
}

/// What each of so many nodes sends in a quiet minute: datagrams, bytes.
fn quiet_minute(nodes: u16) -> (u64, u64) {
    let mut net = Net::new(3, nodes);
    net.run(60);
    net.assert_right("all were started");
    net.processes.iter_mut().flatten().for_each(|process| process.sent = (0, 0));
    net.run(60);
    let sent = net.processes.iter().flatten().map(|process| process.sent);
    let (datagrams, bytes) = sent.fold((0, 0), |sum, sent| (sum.0 + sent.0, sum.1 + sent.1));
    (datagrams / u64::from(nodes), bytes / u64::from(nodes))
}

fn assert_quiet(nodes: u16) {
    let (datagrams, bytes) = quiet_minute(nodes);
    // A ping and an answer every two seconds.
    assert!((58..=64).contains(&datagrams), "{nodes} nodes: {datagrams} datagrams a minute each");
    assert!(bytes <= 64 * 100, "{nodes} nodes: {bytes} bytes a minute each");
}

#[test]
fn a_quiet_node_costs_the_same_in_any_cluster() {
    [5, 20, 80].into_iter().for_each(assert_quiet);
}

/// `cargo test --release -p membership -- --ignored a_thousand`
#[test]
#[ignore = "takes minutes"]
fn a_quiet_node_costs_the_same_among_a_thousand() {
    [10, 1_000].into_iter().for_each(assert_quiet);
}

#[test]
fn another_cluster_is_refused_on_both_sides() {
    let mut net = Net::new(1, 2);
    net.run(5);
    let members = net.live();
    net.processes[1] = None;
    let stranger = net.start(NodeId(1), 1, ClusterId(0xC2), &members);
    net.run(20);
    let refusal = Refusal::Cluster { ours: CLUSTER, theirs: ClusterId(0xC2) };
    assert!(net.told(stranger).contains(&refusal));
    assert!(net.refused(NodeId(1)).contains(&refusal));
    assert!(net.processes[stranger].as_ref().unwrap().detector.up().is_empty());
    assert!(net.processes[0].as_ref().unwrap().detector.up().is_empty());
}

#[test]
fn another_version_is_refused_on_both_sides() {
    let mut net = Net::new(1, 1);
    let speaker = Speaker { node: NodeId(5), start: 1, generation: 1, cluster: CLUSTER };
    net.input(0, 0, Input::Datagram(Datagram::encode(&speaker, &Body::OfVersion(9))));
    let refusal = Refusal::Version { ours: VERSION, theirs: 9 };
    assert_eq!(net.refused(NodeId(5)), [refusal]);
    // The answer flew back, here to the refuser itself, which reads it as any sender would.
    net.run(1);
    assert_eq!(net.told(0), [refusal]);
}

#[test]
fn who_is_no_member_is_refused_and_counts_for_nothing() {
    let mut net = Net::new(1, 3);
    net.run(10);
    let outsider = net.start(NodeId(3), 1, CLUSTER, &(0..4).map(NodeId).collect());
    net.run(10);
    assert!(net.told(outsider).contains(&Refusal::NotMember { node: NodeId(3) }));
    assert!(net.processes[..3].iter().flatten().all(|process| !process.detector.up().contains(&NodeId(3))));
    // It is admitted, and another is removed.
    let members: BTreeSet<NodeId> = [1, 2, 3].map(NodeId).into();
    for at in 1..4 {
        net.input(at, at, Input::Members(members.clone()));
    }
    net.run(20);
    for at in 1..4 {
        let up = net.processes[at].as_ref().unwrap().detector.up();
        assert_eq!(up.len(), 2, "{at} sees {up:?}");
        assert!(!up.contains(&NodeId(0)));
    }
    assert!(net.told(0).contains(&Refusal::NotMember { node: NodeId(0) }));
}

#[test]
fn a_copy_is_refused_and_its_original_stays() {
    let mut net = Net::new(4, 5);
    let members = net.live();
    net.run(10);
    let original = net.processes[2].as_ref().unwrap().detector.speaker();
    // The copy was started more often than its original, so that it wins until it is found out.
    let copy = net.start(NodeId(2), 9, CLUSTER, &members);
    net.address.insert(NodeId(2), 2);
    net.run(60);
    assert!(net.told(copy).contains(&Refusal::Copy { original: original.start }));
    assert!(net.told(2).iter().any(|refusal| matches!(refusal, Refusal::Superseded { .. })));
    assert!(!net.told(2).iter().any(|refusal| matches!(refusal, Refusal::Copy { .. })));
    net.processes[copy] = None;
    net.run(30);
    net.assert_right("the copy has stopped");
}

#[test]
fn a_copy_started_alone_is_the_node() {
    let mut net = Net::new(4, 3);
    let members = net.live();
    net.run(10);
    net.processes[2] = None;
    net.run(1);
    let copy = net.start(NodeId(2), 0, CLUSTER, &members);
    net.run(40);
    net.assert_right("the original had ended");
    assert!(!net.told(copy).iter().any(|refusal| matches!(refusal, Refusal::Copy { .. })));
}

#[test]
fn a_seed_decides_everything() {
    let life = |seed| {
        let mut net = Net::new(seed, 9);
        net.lost_of_thousand = 100;
        net.run(60);
        let sent: Vec<(u64, u64)> = net.processes.iter().flatten().map(|process| process.sent).collect();
        (sent, net.sequence)
    };
    assert_eq!(life(11), life(11));
    assert_ne!(life(11), life(12));
}

#[test]
fn random_bytes_make_no_panic() {
    let mut net = Net::new(5, 3);
    net.run(10);
    let speaker = net.processes[1].as_ref().unwrap().detector.speaker();
    let mut rng = SplitMix64::new(99);
    for _ in 0..20_000 {
        let probe: Vec<u8> = (0..rng.below(90)).map(|_| u8::try_from(rng.below(12)).unwrap()).collect();
        net.input(0, 0, Input::Datagram(Datagram::encode(&speaker, &Body::Probe(probe.into()))));
        net.flying.clear();
    }
}
