use super::*;

#[test]
fn keys_are_linearizable() {
    let reports: Vec<Report> = (0..10).map(|seed| run(Seed(seed), Keep::Hash).0).collect();
    let broken: Vec<&Report> = reports.iter().filter(|report| report.violation.is_some()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    let counted = reports.iter().filter(|report| report.counts()).count();
    assert!(counted >= 9, "{counted} of 10 seeds count");
}
