//! A table of counters: each is declared once, with its meaning and the name under which operators see it.
//!
//! [`counters!`](macro@crate::counters) makes a struct of it, sums, and the list of names and counts. So a new counter
//! needs one line, the code that counts, and a line in the page of statistics, which a test asks for.

/// Declares a struct of counters of type `u64`.
///
/// A field is shown by its own name; with `=> "name"` by that one; with `=> hidden` not at all. Fields of other types
/// stand behind a semicolon: they are neither shown nor summed.
///
/// ```
/// base::counters! {
///     /// Counters of a shop.
///     pub struct ShopCounters {
///         /// Apples sold.
///         apples,
///         /// Pears sold.
///         pears => "pears_total",
///         /// Fruit eaten by its keeper.
///         eaten => hidden,
///     }
/// }
/// let mut sum = ShopCounters { apples: 1, ..ShopCounters::default() };
/// sum += ShopCounters { apples: 2, pears: 5, eaten: 9 };
/// assert_eq!(sum.shown().collect::<Vec<_>>(), [("apples", 3), ("pears_total", 5)]);
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])* pub struct $name:ident {
            $($(#[$doc:meta])* $field:ident $(=> $shown:tt)?,)*
        }
    ) => {
        $crate::counters! {
            $(#[$meta])* pub struct $name { $($(#[$doc])* $field $(=> $shown)?,)* ; }
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                $(self.$field += other.$field;)*
            }
        }
    };
    (
        $(#[$meta:meta])* pub struct $name:ident {
            $($(#[$doc:meta])* $field:ident $(=> $shown:tt)?,)* ;
            $($(#[$other_doc:meta])* pub $other:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: u64,)*
            $($(#[$other_doc])* pub $other: $type,)*
        }

        impl $name {
            /// Each counter that is shown to operators: its name and its count.
            pub fn shown(&self) -> impl Iterator<Item = (&'static str, u64)> {
                let all = [$(($crate::counters!(@name $field $($shown)?), self.$field)),*];
                all.into_iter().filter_map(|(name, count)| Some((name?, count)))
            }
        }
    };
    (@name $field:ident) => { Some(stringify!($field)) };
    (@name $field:ident hidden) => { None };
    (@name $field:ident $shown:literal) => { Some($shown) };
}
