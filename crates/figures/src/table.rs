//! The table of figures, by section.
//!
//! A row is: kind, name in `/stats`, family in `/metrics`, unit of `/stats`, labels in square brackets, `for` its
//! scope, and its meaning.

/// Makes rows of lines.
macro_rules! rows {
    (@scope) => { Scope::Node };
    (@scope $scope:ident) => { Scope::$scope };
    ($(
        $kind:ident $stat:literal $metric:literal $unit:ident $([$($label:literal = $value:literal),+])?
        $(for $scope:ident)?: $help:expr;
    )+) => {
        &[$(Figure {
            stat: $stat,
            metric: $metric,
            kind: Kind::$kind,
            unit: Unit::$unit,
            labels: &[$($(($label, $value)),+)?],
            scope: rows!(@scope $($scope)?),
            help: $help,
        }),+]
    };
}

mod clients;
mod node;
mod replicas;
mod store;

use crate::figure::Figure;

/// The sections of the page, in order.
pub(crate) const SECTIONS: [(&str, &[Figure]); 4] = [
    ("The node", node::NODE),
    ("Clients", clients::CLIENTS),
    ("Replicas and other nodes", replicas::REPLICAS),
    ("The store", store::STORE),
];

/// Rows of all sections.
const ROWS: usize = node::NODE.len() + clients::CLIENTS.len() + replicas::REPLICAS.len() + store::STORE.len();

/// All figures.
pub static FIGURES: &[Figure] = &all();

const fn all() -> [Figure; ROWS] {
    let mut out = [node::NODE[0]; ROWS];
    let (mut section, mut end) = (0, 0);
    while section < SECTIONS.len() {
        let figures = SECTIONS[section].1;
        let mut at = 0;
        while at < figures.len() {
            out[end] = figures[at];
            at += 1;
            end += 1;
        }
        section += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Kind, Scope, Unit};
    use crate::page::series;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn names_stand_for_one_figure_each() {
        let (mut stats, mut metrics) = (BTreeSet::new(), BTreeSet::new());
        for figure in FIGURES {
            assert!(!figure.stat.is_empty() || !figure.metric.is_empty(), "{figure:?}");
            assert!(figure.stat.is_empty() || stats.insert(figure.stat), "{} comes twice", figure.stat);
            let series = series(figure);
            assert!(series.is_empty() || metrics.insert(series.clone()), "{series} comes twice");
        }
    }

    #[test]
    fn a_family_has_one_kind_one_base_unit_and_one_help() {
        let mut families: BTreeMap<&str, &Figure> = BTreeMap::new();
        for figure in FIGURES.iter().filter(|it| !it.metric.is_empty() && it.kind != Kind::Text) {
            let first = families.entry(figure.metric).or_insert(figure);
            assert_eq!((first.kind, first.unit.base()), (figure.kind, figure.unit.base()), "{figure:?}");
            assert_eq!((first.help, first.scope), (figure.help, figure.scope), "{figure:?}");
            let names = |it: &Figure| it.labels.iter().map(|(label, _)| *label).collect::<Vec<_>>();
            assert_eq!(names(first), names(figure), "{figure:?}");
        }
    }

    #[test]
    fn names_follow_the_rules_of_prometheus() {
        for figure in FIGURES.iter().filter(|figure| !figure.metric.is_empty()) {
            let name = figure.metric;
            assert!(name.starts_with("annulet_") || name.starts_with("process_"), "{name}");
            assert!(
                name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_'),
                "{name}"
            );
            assert!(["_total", "_count", "_sum", "_bucket"].iter().all(|end| !name.ends_with(end)), "{name}");
            let base = figure.unit.base();
            assert!(base.is_empty() || name.ends_with(&format!("_{base}")), "{name} has the unit {base}");
            assert!(name.ends_with("_info") == (figure.kind == Kind::Text), "{name}");
        }
    }

    /// The program, or the number of nodes, bounds the values of each label.
    #[test]
    fn no_label_has_what_clients_name() {
        let known = ["op", "result", "level", "part", "direction", "state", "minutes", "certificate"];
        let texts = ["node", "version", "riak", "backend", "type_backends"];
        for figure in FIGURES {
            for (label, value) in figure.labels {
                let is_text = figure.kind == Kind::Text;
                let allowed = if is_text { &texts[..] } else { &known[..] };
                assert!(allowed.contains(label), "{figure:?}");
                assert_eq!(value.is_empty(), is_text, "{figure:?}");
            }
        }
    }

    #[test]
    fn helps_are_sentences_without_their_ends() {
        for Figure { help, stat, metric, .. } in FIGURES {
            assert!(
                !help.is_empty() && !help.ends_with('.') && !help.contains('|'),
                "{stat} {metric}: {help}"
            );
            assert!(!help.contains("/stats"), "{stat} {metric}: {help}");
        }
    }

    #[test]
    fn levels_are_told_by_their_number() {
        let of = |stat: &str| FIGURES.iter().find(|figure| figure.stat == stat);
        let bytes = of("level_N_bytes");
        assert_eq!(bytes.and_then(|it| it.level_of("level_12_bytes")), Some("12"));
        assert_eq!(bytes.and_then(|it| it.level_of("level__bytes")), None);
        assert_eq!(bytes.and_then(|it| it.level_of("level_x_bytes")), None);
        assert_eq!(of("hints").map(|it| (it.scope, it.unit)), Some((Scope::Node, Unit::Count)));
    }
}
