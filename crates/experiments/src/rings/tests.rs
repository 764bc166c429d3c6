use super::*;

fn shape(text: &str) -> Result<Shape, String> {
    Shape::try_from(text.to_owned())
}

#[test]
fn a_shape_is_read_as_it_is_written() {
    for text in ["64 x 1", "16384 x 1000", "8 x 8"] {
        assert_eq!(shape(text).unwrap().to_string(), text);
    }
    for text in ["", "64", "64x3", "60 x 3", "64 x 0", "64 x 65", "64 x -1", "64 x 70000"] {
        assert!(shape(text).is_err(), "{text}");
    }
}

#[test]
fn each_figure_can_be_measured_of_a_small_ring() {
    let (folder, shape) = (tempfile::tempdir().unwrap(), shape("64 x 10").unwrap());
    let of = |figure: Figure| figure.measure(shape, folder.path()).unwrap();
    for figure in [
        Figure::ListWorstUs,
        Figure::PublishMs,
        Figure::FileMs,
        Figure::CoverMs,
        Figure::ClaimS,
        Figure::JoinS,
        Figure::LeaveS,
        Figure::ReplaceS,
        Figure::JoinTenZonesS,
        Figure::JoinThreeZonesS,
    ] {
        let value = of(figure);
        assert!(value > 0.0, "{figure:?}: {value}");
    }
    // What does not depend on the machine.
    assert_eq!([Figure::PublishedAgain, Figure::JoinShortfalls].map(of), [0.0; 2]);
    assert_eq!((of(Figure::JoinMoved), of(Figure::JoinUneven)), (1.0, 1.0));
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "its file is removed");
}

#[test]
fn a_file_that_cannot_be_written_says_so() {
    let wrong = Figure::FileMs.measure(shape("64 x 3").unwrap(), Path::new("/nowhere")).unwrap_err();
    assert!(wrong.to_string().contains("/nowhere"), "{wrong}");
}
