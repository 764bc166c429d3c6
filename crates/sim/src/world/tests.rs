use super::*;

#[test]
fn a_node_that_keeps_its_word() {
    let reports: Vec<_> = (0..20).map(|seed| run(Seed(seed), Backend::Annulet, Keep::Hash).0).collect();
    let broken: Vec<_> = reports.iter().filter(|report| report.violation.is_some()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    let counted = reports.iter().filter(|report| report.counts()).count();
    assert!(counted >= 18, "{counted} of 20 seeds count");
}
