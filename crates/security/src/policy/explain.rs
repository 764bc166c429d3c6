//! Why a user has a permission, or has not: for operators, and for the text of a refusal.

use std::fmt;

use bytes::Bytes;

use crate::permission::Permission;
use crate::policy::{Policy, UserId};
use crate::slot::{Resource, Role, Target};

/// Why a user has a permission on a target, or has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// This grant decides: the widest one, of the nearest role that has one as wide.
    Granted {
        /// The user, a group of the user, or all.
        role: Role,
        /// The resource of the grant.
        resource: Resource,
        /// The permission.
        permission: Permission,
    },
    /// No grant to the user, to a group of the user or to all covers the target.
    Missing {
        /// The user's name, as text.
        user: String,
        /// The target, as text.
        target: String,
        /// The permission.
        permission: Permission,
    },
}

impl Policy {
    /// Explains the decision of [`Policy::may`].
    pub fn explain(&self, user: UserId, permission: Permission, target: Target<'_>) -> Explanation {
        let granted =
            |role: &Role, resource| Explanation::Granted { role: role.clone(), resource, permission };
        for resource in covering(target) {
            for role in self.roles(user) {
                if self.granted(role, &resource).has(permission) {
                    return granted(&self.role_names[role as usize], resource);
                }
            }
        }
        let user = self.name(user).to_string();
        Explanation::Missing { user, target: target.to_string(), permission }
    }
}

/// The resources that cover a target, the widest first.
fn covering(target: Target<'_>) -> Vec<Resource> {
    let copy = Bytes::copy_from_slice;
    match target {
        Target::Any => vec![Resource::Any],
        Target::Type(bucket_type) => vec![Resource::Any, Resource::Type(copy(bucket_type))],
        Target::Bucket(bucket_type, bucket) => {
            let bucket_type = copy(bucket_type);
            let of_bucket = Resource::Bucket(bucket_type.clone(), copy(bucket));
            vec![Resource::Any, Resource::Type(bucket_type), of_bucket]
        }
    }
}

/// A refusal has Riak's text.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Explanation::Granted { role, resource, permission } => {
                write!(f, "'{permission}' by the grant to {role} on {}", resource.target())
            }
            Explanation::Missing { user, target, permission } => {
                write!(f, "Permission denied: User '{user}' does not have '{permission}' on {target}")
            }
        }
    }
}
