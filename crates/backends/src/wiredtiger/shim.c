/*
 * WiredTiger's tables, as functions of a plain C ABI.
 *
 * The library's handles are structures of function pointers, whose places differ from version to version, and its cursors take keys and
 * values as variable arguments. Compiled against the header that the library was installed with, this is the only place that knows either.
 *
 * A store is a session of a connection, and one cursor on one table of byte strings, and is used by one thread at a time. The one that was opened
 * first has the connection; the others (annulet_wt_another) are of no use once it is closed, and may only be closed then, too. Functions give 0
 * or an error of the library's. What a key or value that was found points at stays until the store's next call.
 */

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <wiredtiger.h>

struct annulet_wt {
	WT_CONNECTION *connection;
	WT_SESSION *session;
	WT_CURSOR *cursor;
	int is_first;
};

struct annulet_wt_found {
	const uint8_t *key;
	size_t key_len;
	const uint8_t *value;
	size_t value_len;
	int is_there;
};

/* Stops it, also one that was opened in part: with the first, all that was written is on the disk then. */
int annulet_wt_close(struct annulet_wt *store)
{
	int rc = 0;

	if (store->is_first && store->connection != NULL)
		rc = store->connection->close(store->connection, NULL);
	else if (!store->is_first && store->session != NULL)
		rc = store->session->close(store->session, NULL);
	free(store);
	return (rc);
}

/* A session of the connection, and its cursor. */
static int begin(struct annulet_wt *store, const char *table, const char *table_config)
{
	int rc;

	if ((rc = store->connection->open_session(store->connection, NULL, NULL, &store->session)) != 0)
		return (rc);
	if (table_config != NULL && (rc = store->session->create(store->session, table, table_config)) != 0)
		return (rc);
	return (store->session->open_cursor(store->session, table, NULL, NULL, &store->cursor));
}

/* Opens the database in a folder and a table of it, or makes them. */
int annulet_wt_open(const char *folder, const char *config, const char *table, const char *table_config,
    struct annulet_wt **out)
{
	struct annulet_wt *store;
	int rc;

	if ((store = calloc(1, sizeof(*store))) == NULL)
		return (ENOMEM);
	store->is_first = 1;
	if ((rc = wiredtiger_open(folder, NULL, config, &store->connection)) != 0 ||
	    (rc = begin(store, table, table_config)) != 0) {
		(void)annulet_wt_close(store);
		return (rc);
	}
	*out = store;
	return (0);
}

/* Another of the same database and table, for another thread. It reads nothing of the first but its connection, which stays as it is: the first
 * may be in use. */
int annulet_wt_another(const struct annulet_wt *first, const char *table, struct annulet_wt **out)
{
	struct annulet_wt *store;
	int rc;

	if ((store = calloc(1, sizeof(*store))) == NULL)
		return (ENOMEM);
	store->connection = first->connection;
	if ((rc = begin(store, table, NULL)) != 0) {
		(void)annulet_wt_close(store);
		return (rc);
	}
	*out = store;
	return (0);
}

int annulet_wt_begin(struct annulet_wt *store)
{
	return (store->session->begin_transaction(store->session, "isolation=snapshot"));
}

int annulet_wt_commit(struct annulet_wt *store)
{
	return (store->session->commit_transaction(store->session, NULL));
}

int annulet_wt_rollback(struct annulet_wt *store)
{
	return (store->session->rollback_transaction(store->session, NULL));
}

/* Gives back what the cursor holds in the cache. */
int annulet_wt_reset(struct annulet_wt *store)
{
	return (store->cursor->reset(store->cursor));
}

static void set_key(WT_CURSOR *cursor, const uint8_t *key, size_t key_len)
{
	WT_ITEM item;

	memset(&item, 0, sizeof(item));
	item.data = key;
	item.size = key_len;
	cursor->set_key(cursor, &item);
}

int annulet_wt_put(struct annulet_wt *store, const uint8_t *key, size_t key_len, const uint8_t *value,
    size_t value_len)
{
	WT_ITEM item;

	memset(&item, 0, sizeof(item));
	item.data = value;
	item.size = value_len;
	set_key(store->cursor, key, key_len);
	store->cursor->set_value(store->cursor, &item);
	return (store->cursor->insert(store->cursor));
}

/* Removes a key, whether it is there or not. */
int annulet_wt_remove(struct annulet_wt *store, const uint8_t *key, size_t key_len)
{
	int rc;

	set_key(store->cursor, key, key_len);
	rc = store->cursor->remove(store->cursor);
	return (rc == WT_NOTFOUND ? 0 : rc);
}

/* Where the cursor is after a call that ended like this. */
static int found(WT_CURSOR *cursor, int rc, struct annulet_wt_found *out)
{
	WT_ITEM item;

	memset(out, 0, sizeof(*out));
	if (rc == WT_NOTFOUND)
		return (0);
	if (rc != 0 || (rc = cursor->get_key(cursor, &item)) != 0)
		return (rc);
	out->key = item.data;
	out->key_len = item.size;
	if ((rc = cursor->get_value(cursor, &item)) != 0)
		return (rc);
	out->value = item.data;
	out->value_len = item.size;
	out->is_there = 1;
	return (0);
}

/* The key itself. */
int annulet_wt_find(struct annulet_wt *store, const uint8_t *key, size_t key_len,
    struct annulet_wt_found *out)
{
	set_key(store->cursor, key, key_len);
	return (found(store->cursor, store->cursor->search(store->cursor), out));
}

/* The key behind that of the last call; the first one after a reset. */
int annulet_wt_next(struct annulet_wt *store, struct annulet_wt_found *out)
{
	return (found(store->cursor, store->cursor->next(store->cursor), out));
}

/* The first key that is not before this one; of an empty key, the first of all. */
int annulet_wt_seek(struct annulet_wt *store, const uint8_t *key, size_t key_len,
    struct annulet_wt_found *out)
{
	WT_CURSOR *cursor;
	int exact, rc;

	cursor = store->cursor;
	if (key_len == 0) {
		rc = cursor->reset(cursor);
		return (rc != 0 ? rc : annulet_wt_next(store, out));
	}
	set_key(cursor, key, key_len);
	rc = cursor->search_near(cursor, &exact);
	if (rc == 0 && exact < 0)
		rc = cursor->next(cursor);
	return (found(cursor, rc, out));
}

/* Whether an error means that another's transaction was in the way: the same may be tried again. */
int annulet_wt_is_conflict(int error)
{
	return (error == WT_ROLLBACK);
}

/* What an error means; a text of the library's own that stays. */
const char *annulet_wt_message(int error)
{
	return (wiredtiger_strerror(error));
}
