//! Views of the policy: Riak's tables as text, and the same as rows for programs.
//!
//! Left out: hashes of passwords. A table says whether there is one.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::plan::{group, user};
use super::{CommandError, Print};
use crate::name::Name;
use crate::permission::Permissions;
use crate::policy::{Explanation, Policy, effective_groups};
use crate::slot::{Mode, Options, Resource, Role, Settings, Slot, SlotKey};
use crate::slots::Slots;
use crate::source::SourceUser;

/// Width of a cell beside its text: Riak's tables have some room.
const CELL_MARGIN: usize = 2;

/// A view, as text and as tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The text for people.
    pub text: String,
    /// The same for programs.
    pub tables: Vec<Table>,
}

/// Rows under the names of their columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The heading; empty for the only table of a view.
    pub title: String,
    /// Names of columns.
    pub columns: &'static [&'static str],
    /// Rows, with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// One value.
    Text(String),
    /// Several, which may be none.
    List(Vec<String>),
}

impl Print {
    /// The view of these records, of which `policy` is compiled.
    ///
    /// # Errors
    /// [`CommandError`] for a user or a group that does not exist.
    pub fn show(&self, slots: &Slots, policy: &Policy) -> Result<View, CommandError> {
        Ok(match self {
            Print::Users => tables(vec![users(slots, |_| true)]),
            Print::User(name) => {
                let name = user(slots, name)?.name.clone();
                tables(vec![users(slots, |other| *other == name)])
            }
            Print::Groups => tables(vec![groups(slots, |_| true)]),
            Print::Group(name) => {
                let name = group(slots, name)?.name.clone();
                tables(vec![groups(slots, |other| *other == name)])
            }
            Print::Sources => tables(vec![sources(slots)]),
            Print::Grants(name) => grants(slots, name)?,
            Print::Ciphers => ciphers(slots),
            Print::Status => status(slots, policy.settings().mode),
            Print::Explain(name, permission, resource) => {
                let name = user(slots, name)?.name.clone();
                let id = policy.user(name.as_bytes());
                let id = id.ok_or_else(|| CommandError::User(name.to_string()))?;
                explained(&name, resource, &policy.explain(id, *permission, resource.target()))
            }
        })
    }
}

fn tables(tables: Vec<Table>) -> View {
    let texts: Vec<String> = tables.iter().map(Table::text).collect();
    View { text: texts.join("\n\n"), tables }
}

fn text(bytes: &[u8]) -> Cell {
    Cell::Text(String::from_utf8_lossy(bytes).into_owned())
}

fn names<'a>(names: impl IntoIterator<Item = &'a Name>) -> Cell {
    Cell::List(names.into_iter().map(Name::to_string).collect())
}

fn options(options: &Options) -> Cell {
    let lossy = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    Cell::List(options.iter().map(|(name, value)| format!("{}={}", lossy(name), lossy(value))).collect())
}

fn users(slots: &Slots, is_shown: impl Fn(&Name) -> bool) -> Table {
    let row = |slot: &Slot| match slot {
        Slot::User(user) if is_shown(&user.name) => {
            let password = if user.credential.is_some() { "set" } else { "" };
            Some(vec![
                text(user.name.as_bytes()),
                names(&user.groups),
                Cell::Text(password.to_owned()),
                options(&user.options),
            ])
        }
        _ => None,
    };
    let rows = slots.iter().filter_map(row).collect();
    Table { title: String::new(), columns: &["username", "member of", "password", "options"], rows }
}

fn groups(slots: &Slots, is_shown: impl Fn(&Name) -> bool) -> Table {
    let row = |slot: &Slot| match slot {
        Slot::Group(group) if is_shown(&group.name) => {
            Some(vec![text(group.name.as_bytes()), names(&group.groups), options(&group.options)])
        }
        _ => None,
    };
    let rows = slots.iter().filter_map(row).collect();
    Table { title: String::new(), columns: &["group", "member of", "options"], rows }
}

fn sources(slots: &Slots) -> Table {
    let row = |slot: &Slot| match slot {
        Slot::Source(source) => {
            let users = match &source.user {
                SourceUser::All => text(b"all"),
                SourceUser::User(name) => text(name.as_bytes()),
            };
            let (net, method) = (source.net.to_string(), source.method.name().to_owned());
            Some(vec![users, Cell::Text(net), Cell::Text(method), options(&source.options)])
        }
        _ => None,
    };
    let rows = slots.iter().filter_map(row).collect();
    Table { title: String::new(), columns: &["users", "cidr", "source", "options"], rows }
}

/// The grants of a user, a group or all: dedicated, by groups and by all, and the sum.
fn grants(slots: &Slots, name: &Bytes) -> Result<View, CommandError> {
    let roles = super::plan::roles(slots, std::slice::from_ref(name))?;
    let views: Vec<View> = roles.iter().map(|role| grants_of(slots, role)).collect();
    let texts: Vec<&str> = views.iter().map(|view| &*view.text).collect();
    let text = texts.join("\n\n");
    Ok(View { text, tables: views.into_iter().flat_map(|view| view.tables).collect() })
}

fn grants_of(slots: &Slots, role: &Role) -> View {
    let inherited = inherited_roles(slots, role);
    let named = |title: &str| format!("{title} permissions ({role})");
    let (mut by_others, mut own) = (Vec::new(), Vec::new());
    let mut sum: BTreeMap<&Resource, Permissions> = BTreeMap::new();
    for (holder, resource, permissions) in all_grants(slots) {
        let is_own = holder == role;
        if !is_own && !inherited.contains(holder) {
            continue;
        }
        let before = sum.entry(resource).or_default();
        *before = before.with(permissions);
        let cells = on(resource, permissions);
        if is_own {
            own.push(cells);
        } else {
            by_others.push([vec![Cell::Text(holder.to_string())], cells].concat());
        }
    }
    let columns: &[&str] = &["type", "bucket", "grants"];
    let cumulative = sum.into_iter().map(|(resource, permissions)| on(resource, permissions)).collect();
    let inherited =
        Table { title: named("Inherited"), columns: &["role", "type", "bucket", "grants"], rows: by_others };
    let dedicated = Table { title: named("Dedicated"), columns, rows: own };
    let cumulative = Table { title: named("Cumulative"), columns, rows: cumulative };
    tables(vec![inherited, dedicated, cumulative])
}

/// The roles whose grants a role has, too: groups, and all.
fn inherited_roles(slots: &Slots, role: &Role) -> BTreeSet<Role> {
    let key = match role {
        Role::User(name) => SlotKey::User(name.clone()),
        Role::Group(name) => SlotKey::Group(name.clone()),
        Role::All => return BTreeSet::new(),
    };
    let direct = match slots.get(&key) {
        Some(Slot::User(user)) => &user.groups,
        Some(Slot::Group(group)) => &group.groups,
        _ => return BTreeSet::from([Role::All]),
    };
    let groups = effective_groups(slots, direct).into_iter().map(Role::Group);
    groups.chain([Role::All]).filter(|other| other != role).collect()
}

fn all_grants(slots: &Slots) -> impl Iterator<Item = (&Role, &Resource, Permissions)> {
    slots.iter().filter_map(|slot| match slot {
        Slot::Grant(grant) => Some((&grant.role, &grant.resource, grant.permissions)),
        _ => None,
    })
}

/// A resource and permissions as cells; everything is `*`, as in Riak.
fn on(resource: &Resource, permissions: Permissions) -> Vec<Cell> {
    let (bucket_type, bucket) = match resource {
        Resource::Any => (text(b"*"), text(b"*")),
        Resource::Type(bucket_type) => (text(bucket_type), text(b"*")),
        Resource::Bucket(bucket_type, bucket) => (text(bucket_type), text(bucket)),
    };
    let mut known: Vec<String> = permissions.iter().map(|permission| permission.name().to_owned()).collect();
    let unknown = permissions.without(permissions.iter().collect());
    if !unknown.is_empty() {
        known.push(format!("unknown permissions {:#x}", unknown.0));
    }
    vec![bucket_type, bucket, Cell::List(known)]
}

fn settings(slots: &Slots) -> Settings {
    match slots.get(&SlotKey::Settings) {
        Some(Slot::Settings(settings)) => settings.clone(),
        _ => Settings::default(),
    }
}

fn ciphers(slots: &Slots) -> View {
    let ciphers = settings(slots).ciphers;
    let list =
        if ciphers.is_empty() { "those of the program".into() } else { String::from_utf8_lossy(&ciphers) };
    let rows = vec![vec![text(&ciphers)]];
    let table = Table { title: String::new(), columns: &["ciphers"], rows };
    View { text: format!("Configured ciphers\n\n{list}"), tables: vec![table] }
}

/// The mode in force, which is not that of the records while a node does not go by them, and their counts.
fn status(slots: &Slots, mode: Mode) -> View {
    let (word, mode) = match mode {
        Mode::Off => ("Disabled", "off"),
        Mode::Permissive => ("Permissive", "permissive"),
        Mode::On => ("Enabled", "on"),
    };
    let mut counts = [0_usize; 4];
    for slot in slots.iter() {
        match slot {
            Slot::User(_) => counts[0] += 1,
            Slot::Group(_) => counts[1] += 1,
            Slot::Source(_) => counts[2] += 1,
            Slot::Grant(_) => counts[3] += 1,
            Slot::Settings(_) => {}
        }
    }
    let counts = counts.map(|count| Cell::Text(count.to_string()));
    let row = [vec![text(mode.as_bytes())], counts.to_vec(), vec![Cell::Text(slots.bytes().to_string())]];
    let columns = &["mode", "users", "groups", "sources", "grants", "bytes"];
    let table = Table { title: String::new(), columns, rows: vec![row.concat()] };
    View { text: word.to_owned(), tables: vec![table] }
}

fn explained(user: &Name, resource: &Resource, explanation: &Explanation) -> View {
    let (granted, role, by) = match explanation {
        Explanation::Granted { role, resource, .. } => {
            ("yes", role.to_string(), resource.target().to_string())
        }
        Explanation::Missing { .. } => ("no", String::new(), String::new()),
    };
    let permission = match explanation {
        Explanation::Granted { permission, .. } | Explanation::Missing { permission, .. } => {
            permission.name()
        }
    };
    let texts = [user.to_string(), permission.to_owned(), resource.target().to_string(), granted.to_owned()];
    let row = texts.into_iter().chain([role, by]).map(Cell::Text).collect();
    let columns = &["user", "permission", "target", "granted", "role", "resource"];
    let table = Table { title: String::new(), columns, rows: vec![row] };
    let text = match explanation {
        Explanation::Granted { .. } => format!("'{user}' has {explanation}"),
        Explanation::Missing { .. } => explanation.to_string(),
    };
    View { text, tables: vec![table] }
}

impl Table {
    /// Riak's form: a frame, and each text in the middle of its cell.
    fn text(&self) -> String {
        let heading = self.columns.iter().map(|name| (*name).to_owned()).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(Cell::text).collect());
        let lines: Vec<Vec<String>> = [heading].into_iter().chain(rows).collect();
        let widest = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> =
            (0..self.columns.len()).map(|column| widest(column) + 2 * CELL_MARGIN).collect();
        let rule: String =
            widths.iter().map(|&width| format!("+{}", "-".repeat(width))).collect::<String>() + "+";

        let mut out = Vec::new();
        if !self.title.is_empty() {
            out.extend([self.title.clone(), String::new()]);
        }
        out.push(rule.clone());
        for (at, line) in lines.iter().enumerate() {
            let cells = line.iter().zip(&widths).map(|(cell, &width)| format!("|{cell:^width$}"));
            out.push(cells.collect::<String>() + "|");
            if at == 0 {
                out.push(rule.clone());
            }
        }
        if !self.rows.is_empty() {
            out.push(rule);
        }
        out.join("\n")
    }
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::List(list) => list.join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use crate::credential::Credential;

    fn policy(commands: &[&str]) -> Slots {
        let mut slots = Slots::default();
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            let command = Command::parse(&words).unwrap();
            let credential = command.password().map(|_| Credential::Argon2id("$secret".into()));
            let changes = command.plan(&slots, credential).unwrap();
            slots.apply(&changes).unwrap();
        }
        slots
    }

    fn show(slots: &Slots, words: &str) -> Result<View, CommandError> {
        let words: Vec<&str> = words.split(' ').collect();
        let Command::Print(print) = Command::parse(&words).unwrap() else { panic!("{words:?} changes") };
        print.show(slots, &Policy::compile(slots, 1))
    }

    fn example() -> Slots {
        policy(&[
            "add-group ops",
            "add-group staff groups=ops",
            "add-user ann password=secret groups=staff note=x",
            "add-user bob",
            "add-source all 10.0.0.0/8 password",
            "grant riak_kv.get on any to all",
            "grant annulet.admin on any to ops",
            "grant riak_kv.put,riak_kv.get on t b to ann",
        ])
    }

    #[test]
    fn tables_have_the_form_of_riak() {
        let slots = example();
        let users = "\
+------------+-------------+------------+-----------+
|  username  |  member of  |  password  |  options  |
+------------+-------------+------------+-----------+
|    ann     |    staff    |    set     |  note=x   |
|    bob     |             |            |           |
+------------+-------------+------------+-----------+";
        assert_eq!(show(&slots, "print-users").unwrap().text, users);
        let ann = show(&slots, "print-user Ann").unwrap();
        assert_eq!(ann.tables[0].rows.len(), 1);
        assert!(!format!("{ann:?}").contains("secret"), "no byte of a verifier is shown");
        let sources = "\
+---------+--------------+------------+-----------+
|  users  |     cidr     |   source   |  options  |
+---------+--------------+------------+-----------+
|   all   |  10.0.0.0/8  |  password  |           |
+---------+--------------+------------+-----------+";
        assert_eq!(show(&slots, "print-sources").unwrap().text, sources);
        assert_eq!(show(&slots, "print-groups").unwrap().tables[0].rows.len(), 2);
        assert_eq!(show(&slots, "print-user x"), Err(CommandError::User("x".into())));
        assert_eq!(show(&slots, "print-group x"), Err(CommandError::Group("x".into())));
    }

    #[test]
    fn grants_are_own_inherited_and_in_sum() {
        let slots = example();
        let view = show(&slots, "print-grants ann").unwrap();
        let titles: Vec<&str> = view.tables.iter().map(|table| &*table.title).collect();
        let permissions = ["Inherited", "Dedicated", "Cumulative"];
        assert_eq!(titles, permissions.map(|title| format!("{title} permissions (user/ann)")));
        assert_eq!(view.tables.iter().map(|table| table.rows.len()).collect::<Vec<_>>(), [2, 1, 2]);
        let row = ["Inherited permissions (user/ann)", "group/ops", "annulet.admin", "riak_kv.get"];
        assert!(row.iter().all(|text| view.text.contains(text)), "{}", view.text);
        assert_eq!(show(&slots, "print-grants all").unwrap().tables[0].rows.len(), 0);
        assert_eq!(show(&slots, "print-grants x"), Err(CommandError::Names("x".into())));
    }

    #[test]
    fn status_and_explanations_are_sentences() {
        let slots = example();
        assert_eq!(show(&slots, "status").unwrap().text, "Disabled");
        let text = |words: &str| show(&slots, words).unwrap().text;
        assert_eq!(
            text("explain ann annulet.admin any"),
            "'ann' has 'annulet.admin' by the grant to group/ops on any"
        );
        assert_eq!(
            text("explain bob riak_kv.put t b"),
            "Permission denied: User 'bob' does not have 'riak_kv.put' on t/b"
        );
        let view = show(&slots, "explain bob riak_kv.put t b").unwrap();
        assert_eq!(view.tables[0].rows[0][3], Cell::Text("no".into()));
        assert_eq!(text("ciphers"), "Configured ciphers\n\nthose of the program");
    }
}
