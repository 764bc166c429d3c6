//! A table of WiredTiger's: all that touches the library, through the functions of `shim.c`.
//!
//! Invariants: a handle is used by whoever has it alone, as the library's sessions ask for, and the database is closed
//! behind the last of them; what is found is shown to a closure or borrows the handle, since it is gone with the next
//! call; a transaction that is not committed is rolled back. Left out: what keys and values mean.

use super::NAME;
use crate::error::Error;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

/// A key, and what it has.
pub type Row<'a> = (&'a [u8], &'a [u8]);

/// What the C side keeps: never looked into here.
#[repr(C)]
struct Opaque {
    _bytes: [u8; 0],
}

/// What a call has found; as in `shim.c`.
#[repr(C)]
struct Found {
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    is_there: c_int,
}

// As in `shim.c`.
unsafe extern "C" {
    fn annulet_wt_open(
        folder: *const c_char,
        config: *const c_char,
        table: *const c_char,
        table_config: *const c_char,
        out: *mut *mut Opaque,
    ) -> c_int;
    fn annulet_wt_another(first: *const Opaque, table: *const c_char, out: *mut *mut Opaque) -> c_int;
    fn annulet_wt_close(store: *mut Opaque) -> c_int;
    fn annulet_wt_begin(store: *mut Opaque) -> c_int;
    fn annulet_wt_commit(store: *mut Opaque) -> c_int;
    fn annulet_wt_rollback(store: *mut Opaque) -> c_int;
    fn annulet_wt_reset(store: *mut Opaque) -> c_int;
    fn annulet_wt_put(
        store: *mut Opaque,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
    ) -> c_int;
    fn annulet_wt_remove(store: *mut Opaque, key: *const u8, key_len: usize) -> c_int;
    fn annulet_wt_find(store: *mut Opaque, key: *const u8, key_len: usize, out: *mut Found) -> c_int;
    fn annulet_wt_seek(store: *mut Opaque, key: *const u8, key_len: usize, out: *mut Found) -> c_int;
    fn annulet_wt_next(store: *mut Opaque, out: *mut Found) -> c_int;
    fn annulet_wt_is_conflict(error: c_int) -> c_int;
    fn annulet_wt_message(error: c_int) -> *const c_char;
}

/// A thread's handle of an open database with one table.
pub struct Table {
    /// The database's first handle, or what `annulet_wt_another` gave.
    handle: NonNull<Opaque>,
    name: &'static CStr,
    database: Arc<Database>,
}

// SAFETY: the library lets a session be used by several threads one after the other, and a `Table` is not `Sync`.
unsafe impl Send for Table {}

/// An open database.
struct Database {
    /// What `annulet_wt_open` gave, until `close` or `drop` give it back.
    first: NonNull<Opaque>,
}

// SAFETY: nothing is done with it but to make other handles, for which only the connection is read, a field that stays
// as it is, of a library's object that all threads may use; and to close it, once nobody has it any more.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

/// Why a transaction was not carried out.
#[derive(Debug)]
pub enum Stop {
    /// Another's was in the way, and this one was taken back: the same can be tried again.
    Conflict,
    /// It failed.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl Table {
    /// Opens the table `name` of the database in `folder`, or makes them.
    pub fn open(
        folder: &Path,
        config: &str,
        name: &'static CStr,
        table_config: &CStr,
    ) -> Result<Table, Error> {
        let refuse = |_| Error::Refused("WiredTiger takes no zero byte in a path".to_owned());
        let folder = CString::new(folder.as_os_str().as_bytes()).map_err(refuse)?;
        let config = CString::new(config).map_err(refuse)?;
        let mut handle = ptr::null_mut();
        // SAFETY: four texts that end with a zero byte and outlive the call, and a place for the handle.
        let result = unsafe {
            annulet_wt_open(
                folder.as_ptr(),
                config.as_ptr(),
                name.as_ptr(),
                table_config.as_ptr(),
                &raw mut handle,
            )
        };
        check(result)?;
        let handle = NonNull::new(handle).expect("a table that was opened has a handle");
        Ok(Table { handle, name, database: Arc::new(Database { first: handle }) })
    }

    /// Another handle of it, for another thread.
    pub fn another(&self) -> Result<Table, Error> {
        let mut handle = ptr::null_mut();
        let (first, name) = (self.database.first.as_ptr(), self.name);
        // SAFETY: the database is open, of which only the connection is read; a text that ends with a zero byte, and a
        // place for the handle.
        check(unsafe { annulet_wt_another(first, name.as_ptr(), &raw mut handle) })?;
        let handle = NonNull::new(handle).expect("a table that was opened has a handle");
        Ok(Table { handle, name, database: Arc::clone(&self.database) })
    }

    /// Shows what a key has, if it is there.
    pub fn find<T>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Error> {
        let mut found = Found::NONE;
        // SAFETY: the handle is open, the key is so long, and there is a place for what is found.
        check(unsafe { annulet_wt_find(self.at(), key.as_ptr(), key.len(), &raw mut found) })?;
        // SAFETY: the library has just set it, and nothing is called before `read` has returned.
        let seen = unsafe { found.row() }.map(|(_, value)| read(value));
        // SAFETY: the handle is open.
        check(unsafe { annulet_wt_reset(self.at()) })?;
        Ok(seen)
    }

    /// Begins a transaction, which sees what was committed.
    pub fn begin(&mut self) -> Result<Transaction<'_>, Error> {
        // SAFETY: the handle is open.
        check(unsafe { annulet_wt_begin(self.at()) })?;
        Ok(Transaction { table: self, is_open: true })
    }

    /// Stops; all that was committed is on the disk then. No other handle is left.
    pub fn close(self) -> Result<(), Error> {
        let database = Arc::clone(&self.database);
        drop(self);
        let database = Arc::into_inner(database);
        let database =
            database.ok_or_else(|| Error::Refused("a store is closed when no thread uses it".to_owned()))?;
        let first = database.first;
        std::mem::forget(database);
        // SAFETY: the handle is open, and nobody has it any more.
        check(unsafe { annulet_wt_close(first.as_ptr()) })
    }

    fn at(&mut self) -> *mut Opaque {
        self.handle.as_ptr()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.handle != self.database.first {
            // SAFETY: the handle is open, nobody has it any more, and the first is still open.
            unsafe { annulet_wt_close(self.handle.as_ptr()) };
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Whoever wants to know how it ended closes it.
        // SAFETY: the handle is open, and nobody has it or another any more.
        unsafe { annulet_wt_close(self.first.as_ptr()) };
    }
}

/// A transaction, which is rolled back if it is not committed.
pub struct Transaction<'t> {
    table: &'t mut Table,
    is_open: bool,
}

impl Transaction<'_> {
    /// Sets what a key has.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Stop> {
        // SAFETY: the handle is open, and key and value are so long.
        check_write(unsafe {
            annulet_wt_put(self.table.at(), key.as_ptr(), key.len(), value.as_ptr(), value.len())
        })
    }

    /// Removes a key, whether it is there or not.
    pub fn remove(&mut self, key: &[u8]) -> Result<(), Stop> {
        // SAFETY: the handle is open, and the key is so long.
        check_write(unsafe { annulet_wt_remove(self.table.at(), key.as_ptr(), key.len()) })
    }

    /// The first key that is not before this one, with what it has.
    pub fn seek(&mut self, key: &[u8]) -> Result<Option<Row<'_>>, Error> {
        let mut found = Found::NONE;
        // SAFETY: the handle is open, the key is so long, and there is a place for what is found.
        check(unsafe { annulet_wt_seek(self.table.at(), key.as_ptr(), key.len(), &raw mut found) })?;
        // SAFETY: the library has just set it, and nothing is called while it is borrowed.
        Ok(unsafe { found.row() })
    }

    /// The key behind the one that was sought or came last, with what it has.
    pub fn next(&mut self) -> Result<Option<Row<'_>>, Error> {
        let mut found = Found::NONE;
        // SAFETY: the handle is open, and there is a place for what is found.
        check(unsafe { annulet_wt_next(self.table.at(), &raw mut found) })?;
        // SAFETY: the library has just set it, and nothing is called while it is borrowed.
        Ok(unsafe { found.row() })
    }

    /// Makes what was written count, all of it or nothing.
    pub fn commit(mut self) -> Result<(), Stop> {
        // A commit that fails has rolled back.
        self.is_open = false;
        // SAFETY: the handle is open, and so is its transaction.
        check_write(unsafe { annulet_wt_commit(self.table.at()) })
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // What makes it fail makes the next call fail, too.
            // SAFETY: the handle is open, and so is its transaction.
            unsafe { annulet_wt_rollback(self.table.at()) };
        }
    }
}

impl Found {
    const NONE: Found = Found { key: ptr::null(), key_len: 0, value: ptr::null(), value_len: 0, is_there: 0 };

    /// The key and what it has, if there is one.
    ///
    /// # Safety
    /// A call has set it, and the table has no other call while the bytes are borrowed.
    unsafe fn row<'a>(&self) -> Option<Row<'a>> {
        if self.is_there == 0 {
            return None;
        }
        // SAFETY: the library says that so many bytes are there until its next call.
        unsafe { Some((bytes(self.key, self.key_len), bytes(self.value, self.value_len))) }
    }
}

/// The bytes at a place, which means nothing where there are none.
///
/// # Safety
/// So many bytes can be read there for as long as they are borrowed.
unsafe fn bytes<'a>(at: *const u8, len: usize) -> &'a [u8] {
    // SAFETY: as the caller says; the library gives no bytes a null pointer.
    if len == 0 { &[] } else { unsafe { slice::from_raw_parts(at, len) } }
}

fn check(result: c_int) -> Result<(), Error> {
    if result == 0 {
        return Ok(());
    }
    // SAFETY: it gives a text of the library's own, or of the C library's, that ends with a zero byte; it is copied at
    // once.
    let what = unsafe { CStr::from_ptr(annulet_wt_message(result)) };
    Err(Error::of(NAME)(what.to_string_lossy()))
}

fn check_write(result: c_int) -> Result<(), Stop> {
    // SAFETY: it compares its argument.
    match unsafe { annulet_wt_is_conflict(result) } {
        0 => Ok(check(result)?),
        _ => Err(Stop::Conflict),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path) -> Table {
        Table::open(folder, "create", c"table:rows", c"key_format=u,value_format=u").unwrap()
    }

    #[test]
    fn what_is_not_committed_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = open(folder.path());
        let mut transaction = table.begin().unwrap();
        transaction.put(b"a", b"1").unwrap();
        transaction.commit().unwrap();
        let mut transaction = table.begin().unwrap();
        transaction.put(b"a", b"2").unwrap();
        transaction.remove(b"never there").unwrap();
        assert_eq!(transaction.seek(b"").unwrap(), Some((&b"a"[..], &b"2"[..])));
        assert_eq!(transaction.next().unwrap(), None);
        drop(transaction);
        assert_eq!(table.find(b"a", <[u8]>::to_vec).unwrap(), Some(b"1".to_vec()));
        let mut transaction = table.begin().unwrap();
        assert_eq!(transaction.seek(b"").unwrap(), Some((&b"a"[..], &b"1"[..])));
        assert_eq!(transaction.seek(b"0").unwrap(), Some((&b"a"[..], &b"1"[..])));
        assert_eq!(transaction.seek(b"b").unwrap(), None);
    }

    #[test]
    fn of_two_transactions_that_write_a_key_one_is_told_of_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = open(folder.path());
        let mut second = first.another().unwrap();
        let mut one = first.begin().unwrap();
        let mut other = second.begin().unwrap();
        one.put(b"a", b"1").unwrap();
        assert!(matches!(other.put(b"a", b"2"), Err(Stop::Conflict)));
        drop(other);
        one.commit().unwrap();
        let mut again = second.begin().unwrap();
        again.put(b"a", b"2").unwrap();
        again.commit().unwrap();
        assert_eq!(first.find(b"a", <[u8]>::to_vec).unwrap(), Some(b"2".to_vec()));
    }

    #[test]
    fn it_is_closed_when_nobody_has_another_handle() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(folder.path());
        let mut second = first.another().unwrap();
        assert!(matches!(first.close(), Err(Error::Refused(_))));
        // The other one goes on.
        let mut transaction = second.begin().unwrap();
        transaction.put(b"a", b"1").unwrap();
        transaction.commit().unwrap();
        second.close().unwrap();
    }

    #[test]
    fn an_error_says_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let table = open(folder.path());
        let again = Table::open(folder.path(), "create", c"table:rows", c"").map(drop);
        assert!(
            matches!(&again, Err(Error::Failed { engine: NAME, what }) if what.contains("busy")),
            "{again:?}"
        );
        table.close().unwrap();
        let zero = Table::open(Path::new("a\0b"), "create", c"table:rows", c"").map(drop);
        assert!(matches!(zero, Err(Error::Refused(_))));
    }
}
