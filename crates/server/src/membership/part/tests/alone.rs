//! The metadata log of a node alone.

use super::*;
use ::membership::state::StoreBirths;
use ring::Birth;
use std::fs;

pub(super) fn config(data: &Path) -> Config {
    Config { data: data.to_path_buf(), name: "a@h".to_owned(), ..Config::default() }
}

fn layout() -> Layout {
    Layout::new(1, RingSize::new(16).unwrap())
}

pub(super) fn alone(config: &Config, owner: Option<&Owner>) -> Result<Entered, Error> {
    Entering { config, owner, layout: layout() }.alone()
}

fn opened(entered: Entered, data: &Path, life: u64) -> Part {
    Part::open(entered, data, life, &queue(1).0, &policies()).unwrap()
}

pub(super) fn propose(part: &mut Part, command: Command) -> Result<(), End> {
    let input = Input::Propose { token: 1, command };
    part.step(input, None, &Mailboxes::new(1), None)?;
    part.step(Input::Tick, None, &Mailboxes::new(1), None)
}

/// A node with consistent groups, after its process has ended.
fn with_groups(data: &Path) {
    let mut part = opened(alone(&config(data), None).unwrap(), data, 1);
    register(&mut part, &Mailboxes::new(1));
    propose(&mut part, Command::PrepareStores).unwrap();
    let stores = StoreBirths { ring_bits: 4, births: [Birth::of(7).unwrap()].into() };
    let (starts, start) = (part.identity().starts, 1);
    propose(&mut part, Command::RegisterStores { node: NodeId(0), starts, start, stores }).unwrap();
    let expected = part.state().version();
    propose(&mut part, Command::FoundGroups { expected, n_val: 3, number: 9 }).unwrap();
    assert_eq!(part.state().first_voters(3, 5).unwrap(), [(NodeId(0), Birth::of(7).unwrap())]);
}

/// Runs a part until nothing is left to do.
fn run_to_its_end(data: &Path, life: u64) {
    let (handle, inbox) = queue(1);
    let part = Part::open(alone(&config(data), None).unwrap(), data, life, &handle, &policies()).unwrap();
    handle.stop();
    part.run(&inbox, &Mailboxes::new(1), None).unwrap();
}

#[test]
fn the_state_of_a_node_alone_outlives_its_process() {
    let data = tempfile::tempdir().unwrap();
    let names = |data: &Path| {
        let mut names: Vec<String> = fs::read_dir(data.join("membership"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    run_to_its_end(data.path(), 1);
    assert_eq!(names(data.path()), ["lock", "log", "starts"], "it has no standing");

    let mut second = opened(alone(&config(data.path()), None).unwrap(), data.path(), 2);
    assert_eq!(second.identity().starts, 2);
    let mailboxes = Mailboxes::new(1);
    register(&mut second, &mailboxes);
    let slot = |name| Command::Slot { name, before: None, value: Some(Bytes::from_static(b"v")) };
    propose(&mut second, slot(Bytes::from_static(b"s"))).unwrap();
    let state = second.state().clone();
    drop(second);
    let third = opened(alone(&config(data.path()), Some(&Owner::Alone)).unwrap(), data.path(), 3);
    assert_eq!(third.state(), &state);
    assert_eq!(third.identity().starts, 3, "also where the count of starts is behind the log");
}

#[test]
fn a_node_alone_at_rest_writes_nothing() {
    let data = tempfile::tempdir().unwrap();
    let mut part = opened(alone(&config(data.path()), None).unwrap(), data.path(), 1);
    let mailboxes = Mailboxes::new(1);
    register(&mut part, &mailboxes);
    let log = || fs::read(data.path().join("membership/log")).unwrap();
    let (before, mut now, mut out) = (log(), part.clock.now(), Vec::new());
    let mut looks = 0;
    let end = now + Duration::from_secs(60);
    while now < end {
        part.membership.step(Input::Tick, now, &mut out);
        now = part.membership.next_timer();
        looks += 1;
    }
    assert_eq!((out, log() == before), (Vec::new(), true));
    assert!(looks <= 62, "it wakes {looks} times in a minute");
}

#[test]
fn a_first_start_may_end_at_any_write() {
    let whole = tempfile::tempdir().unwrap();
    run_to_its_end(whole.path(), 1);
    let file = |name: &str| fs::read(whole.path().join("membership").join(name)).unwrap();
    let (starts, log) = (file("starts"), file("log"));
    let first = {
        let folder = tempfile::tempdir().unwrap();
        let mut part = opened(alone(&config(folder.path()), None).unwrap(), folder.path(), 1);
        let mut out = Vec::new();
        part.membership.step(Input::Tick, part.clock.now(), &mut out);
        let found = out.iter().find_map(|output| match output {
            Output::Write(::membership::log::Write::Replace(bytes)) => Some(bytes.len()),
            _ => None,
        });
        found.unwrap()
    };
    assert!(first <= log.len());

    let none: &[u8] = b"";
    let mut folders: Vec<Vec<(&str, &[u8])>> = vec![vec![], vec![("lock", none)]];
    let cuts = |bytes: &[u8]| (0..bytes.len()).step_by(7).collect::<Vec<_>>();
    folders.extend(cuts(&starts).iter().map(|&len| vec![("lock", none), ("starts.new", &starts[..len])]));
    let counted: [(&str, &[u8]); 2] = [("lock", none), ("starts", &starts)];
    folders.push(counted.to_vec());
    folders.extend(cuts(&log).iter().map(|&len| [&counted[..], &[("log.new", &log[..len])]].concat()));
    folders.extend((first..=log.len()).map(|len| [&counted[..], &[("log", &log[..len])]].concat()));
    for files in folders {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join("membership");
        fs::create_dir(&folder).unwrap();
        files.iter().for_each(|(name, bytes)| fs::write(folder.join(name), bytes).unwrap());
        run_to_its_end(data.path(), 2);
        let mut again = opened(alone(&config(data.path()), None).unwrap(), data.path(), 3);
        register(&mut again, &Mailboxes::new(1));
        assert_eq!(again.state().members().len(), 1);
    }
}

#[test]
fn a_node_alone_that_is_told_something_else_begins_anew() {
    let data = tempfile::tempdir().unwrap();
    let mut first = opened(alone(&config(data.path()), None).unwrap(), data.path(), 1);
    register(&mut first, &Mailboxes::new(1));
    drop(first);
    let starts = |config: &Config, owner| {
        alone(config, owner).map(|entered| (entered.is_new, entered.standing.record().starts)).unwrap()
    };
    assert_eq!(starts(&config(data.path()), Some(&Owner::Alone)), (false, 1));
    let renamed = Config { name: "b@h".to_owned(), ..config(data.path()) };
    assert_eq!(starts(&renamed, Some(&Owner::Alone)), (true, 0));
    let data = tempfile::tempdir().unwrap();
    with_groups(data.path());
    let zoned = Config { zone: "z".to_owned(), name: "b@h".to_owned(), ..config(data.path()) };
    let kept = alone(&zoned, Some(&Owner::Alone)).unwrap();
    assert_eq!((kept.is_new, &*kept.standing.record().member.name), (false, "a@h"), "groups rest on it");
    assert!(kept.standing.state.founding(3).is_some());
}

#[test]
fn a_log_that_cannot_be_read_is_an_error() {
    let data = tempfile::tempdir().unwrap();
    with_groups(data.path());
    let path = data.path().join("membership/log");
    let log = fs::read(&path).unwrap();
    let mut bad = log.clone();
    bad[40] ^= 1;
    fs::write(&path, &bad).unwrap();
    let text = refused(alone(&config(data.path()), Some(&Owner::Alone)));
    assert!(text.contains("damage at byte 19 of the metadata log"), "{text}");
    let mut newer = log;
    newer[4] = 3;
    fs::write(&path, &newer).unwrap();
    let text = refused(alone(&config(data.path()), Some(&Owner::Alone)));
    assert!(text.contains("metadata log of format 3"), "{text}");
}

#[test]
fn a_node_alone_founds_a_cluster_and_drops_its_log() {
    let data = tempfile::tempdir().unwrap();
    run_to_its_end(data.path(), 1);
    // Its stores were not made yet: it may be one of several.
    let both = members(&["a@h", "b@h"]);
    let entered_first = entered(&config(data.path()), None, both, Vec::new()).unwrap();
    let cluster = entered_first.standing.cluster();
    let part = opened(entered_first, data.path(), 2);
    assert_eq!((part.state().cluster(), part.state().members().len()), (cluster, 2));

    let data = tempfile::tempdir().unwrap();
    run_to_its_end(data.path(), 1);
    let list = || members(&["a@h"]);
    let founded = entered(&config(data.path()), Some(&Owner::Alone), list(), Vec::new()).unwrap();
    let part = opened(founded, data.path(), 2);
    assert_eq!(&*part.state().members()[&NodeId(0)].address, "127.0.0.1:1000");
    drop(part);
    let text = refused(alone(&config(data.path()), Some(&Owner::Alone)));
    assert!(text.contains("but this node is to be of a node alone"), "{text}");

    let data = tempfile::tempdir().unwrap();
    with_groups(data.path());
    let text = refused(entered(&config(data.path()), Some(&Owner::Alone), list(), Vec::new()));
    assert!(text.contains("a security policy: a cluster does not take them over"), "{text}");
    let contact = vec!["127.0.0.1:9".parse().unwrap()];
    let text = refused(entered(&config(data.path()), Some(&Owner::Alone), Vec::new(), contact));
    assert!(text.contains("with an empty data folder"), "{text}");
}

#[test]
fn a_node_alone_goes_on_where_nothing_can_be_written_until_groups_need_it() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().join("membership");
    std::os::unix::fs::symlink("nowhere", &folder).unwrap();
    let entered = alone(&config(data.path()), None).unwrap();
    assert!(entered.files.is_none() && entered.is_new && entered.owner() == Owner::Alone);
    let mut part = opened(entered, data.path(), 1);
    register(&mut part, &Mailboxes::new(1));
    let lost = propose(&mut part, Command::PrepareStores).unwrap_err();
    assert_eq!(lost, End::Lost("the metadata log is not kept".to_owned()));

    // Something may rest on a log that cannot be looked for.
    fs::remove_file(&folder).unwrap();
    fs::write(&folder, b"in the place of the folder").unwrap();
    assert!(refused(alone(&config(data.path()), None)).contains("membership"));

    // The disk takes nothing from a moment on.
    let data = tempfile::tempdir().unwrap();
    let mut part = opened(alone(&config(data.path()), None).unwrap(), data.path(), 1);
    fs::remove_dir_all(data.path().join("membership")).unwrap();
    register(&mut part, &Mailboxes::new(1));
    assert!(!part.storage.is_kept());
}
