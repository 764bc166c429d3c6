//! Planted bugs: each breaks the story of its rule.

use std::panic::catch_unwind;

use base::planted::{Planted, plant};

use crate::stories::{
    a_cycle_of_groups_is_harmless, a_grant_covers_its_resource_and_no_other,
    an_empty_password_is_refused_without_a_hash, an_ipv4_network_has_no_peer_of_ipv6,
    only_the_common_name_names_a_user, the_longest_prefix_decides_and_a_user_stands_before_all,
};

fn is_caught(bug: Planted, story: fn()) {
    plant(Some(bug));
    let told = catch_unwind(story);
    plant(None);
    assert!(told.is_err(), "{bug:?} is not caught");
}

/// Tests of one bug each.
macro_rules! caught {
    ($($name:ident: $bug:ident, $story:expr;)*) => {
        $(
            #[test]
            fn $name() {
                is_caught(Planted::$bug, $story);
            }
        )*
    };
}

caught! {
    planted_permission_by_prefix: PermissionByPrefix, a_grant_covers_its_resource_and_no_other;
    planted_v4_net_matches_mapped: V4NetMatchesMapped, an_ipv4_network_has_no_peer_of_ipv6;
    planted_all_before_user: AllBeforeUser, the_longest_prefix_decides_and_a_user_stands_before_all;
    planted_cn_from_any_rdn: CnFromAnyRdn, only_the_common_name_names_a_user;
    planted_group_cycle_hangs: GroupCycleHangs, a_cycle_of_groups_is_harmless;
    planted_empty_password_accepted: EmptyPasswordAccepted, an_empty_password_is_refused_without_a_hash;
}
