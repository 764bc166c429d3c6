use super::*;
use kv::Quorum;

#[test]
fn a_cluster_that_keeps_its_word() {
    let reports: Vec<_> = (0..20).map(|seed| run(Seed(seed), None, Backend::Annulet, Keep::Hash).0).collect();
    let broken: Vec<_> = reports.iter().filter(|report| report.violation.is_some()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    let counted = reports.iter().filter(|report| report.counts()).count();
    assert!(counted >= 19, "{counted} of 20 seeds count");
    let purged = reports.iter().filter_map(|report| report.purged);
    let (erased, read) =
        purged.fold((0, 0), |(erased, read), it| (erased + it.objects, read + it.tombstones));
    assert!(erased > 20 && read > 0, "{erased} objects were erased, {read} tombstones read");
}

#[test]
fn a_node_that_keeps_its_word() {
    let reports: Vec<_> = (0..20).map(|seed| run_alone(Seed(seed), Backend::Annulet, Keep::Hash).0).collect();
    let broken: Vec<_> = reports.iter().filter(|report| report.violation.is_some()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    let counted = reports.iter().filter(|report| report.counts()).count();
    assert!(counted >= 18, "{counted} of 20 seeds count");
}

#[test]
fn a_copy_that_is_cut_comes_to_its_end() {
    for seed in 0..3 {
        let outcome =
            transfer::run(Seed(seed), 3_000).unwrap_or_else(|violation| panic!("{seed}: {violation}"));
        assert!(outcome.cuts >= 5 && outcome.objects >= 1_000, "{seed}: {outcome}");
    }
}

#[test]
fn clients_do_not_notice_a_restart_of_all_nodes() {
    for seed in 0..3 {
        let outcome = rolling::run(Seed(seed)).unwrap_or_else(|violation| panic!("{seed}: {violation}"));
        assert!(outcome.restarts >= 9, "{seed}: {outcome}");
    }
}

#[test]
fn what_is_too_much_is_refused() {
    overload::run(Seed(1)).unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn nodes_agree_on_many_buckets() {
    gossip::run(Seed(1), 5, 200).unwrap_or_else(|violation| panic!("{violation}"));
}

/// Whoever takes no absence for an answer fails while a key's first write has come to one replica and not to the
/// others, whatever the load.
#[test]
fn plain_clients_ask_for_what_buckets_say() {
    let mut client = Client::new(Seed(1).stream("crowd", 0), &Plan::calm(Seed(1), 3));
    client.is_plain = true;
    let requests = (0..1_000).map(|number| client.next(number, 5, Duration::from_secs(1), 3).0);
    let gets: Vec<_> = requests
        .filter_map(|request| match request {
            Request::Get(get) => Some(get),
            _ => None,
        })
        .collect();
    assert!(gets.len() > 100, "{}", gets.len());
    for get in gets {
        assert_eq!((get.r, get.pr, get.n_val), (Quorum::Default, Quorum::Default, None));
        assert_eq!((get.basic_quorum, get.notfound_ok), (None, None));
    }
}
