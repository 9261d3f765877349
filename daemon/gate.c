#include "gate.h"
#include "own.h"
#include <acl/libacl.h>
#include <errno.h>
#include <string.h>
#include <sys/acl.h>
#include <sys/stat.h>

static void acl_closep(acl_t *acl)
{
	if (*acl)
		acl_free(*acl);
}

void gate_init(struct gate *g, const char *node)
{
	*g = (struct gate){.node = node};
}

/* Removes every named user, and the mask that they needed. */
static bool empty(acl_t acl)
{
	acl_entry_t entry;
	acl_tag_t tag;
	int which = ACL_FIRST_ENTRY, found;

	while ((found = acl_get_entry(acl, which, &entry)) == 1) {
		which = ACL_NEXT_ENTRY;
		if (acl_get_tag_type(entry, &tag) < 0)
			return false;
		/* What comes next is not known of an entry that is gone: from the start again. */
		if (tag == ACL_USER || tag == ACL_MASK) {
			if (acl_delete_entry(acl, entry) < 0)
				return false;
			which = ACL_FIRST_ENTRY;
		}
	}
	return found == 0;
}

static bool add(acl_t *acl, uid_t user)
{
	acl_entry_t entry;
	acl_permset_t may;

	return acl_create_entry(acl, &entry) == 0 && acl_set_tag_type(entry, ACL_USER) == 0 &&
	       acl_set_qualifier(entry, &user) == 0 && acl_get_permset(entry, &may) == 0 &&
	       acl_add_perm(may, ACL_READ) == 0 && acl_add_perm(may, ACL_WRITE) == 0 &&
	       acl_set_permset(entry, may) == 0;
}

static bool set(const struct gate *g, const struct stat *st)
{
	cleanup(acl_closep) acl_t acl = acl_get_file(g->node, ACL_TYPE_ACCESS);

	if (!acl || !empty(acl))
		return false;
	for (size_t i = 0; i < g->count; i++)
		if (g->users[i] != 0 && g->users[i] != st->st_uid && !add(&acl, g->users[i]))
			return false;
	if (acl_equiv_mode(acl, NULL) != 0 && acl_calc_mask(&acl) < 0)
		return false;
	return acl_set_file(g->node, ACL_TYPE_ACCESS, acl) == 0;
}

static bool is_same(const struct gate *g, const struct stat *st, const uid_t *users, size_t count)
{
	return g->changed.tv_sec == st->st_ctim.tv_sec && g->changed.tv_nsec == st->st_ctim.tv_nsec &&
	       g->count == count && memcmp(g->users, users, count * sizeof *users) == 0;
}

/* Whose tickets hold, each once, in order. */
static size_t holders(const struct arbiter *a, uid_t users[GATE_USERS])
{
	size_t count = 0;

	link_each(at, &a->tickets)
	{
		const struct ticket_record *t = &link_of(at, struct ticket, in_tickets)->is;
		size_t i = 0;
		if (t->state != TICKET_GRANTED && t->state != TICKET_EXPIRING)
			continue;
		while (i < count && users[i] < t->uid)
			i++;
		if ((i < count && users[i] == t->uid) || count == GATE_USERS)
			continue;
		memmove(&users[i + 1], &users[i], (count - i) * sizeof *users);
		users[i] = t->uid;
		count++;
	}
	return count;
}

int gate_follow(struct gate *g, const struct arbiter *a, struct err *err)
{
	struct stat st;
	uid_t users[GATE_USERS];
	size_t count;

	if (!g->node || stat(g->node, &st) < 0)
		return 0;
	count = holders(a, users);
	if (is_same(g, &st, users, count))
		return 0;
	memcpy(g->users, users, count * sizeof *users);
	g->count = count;
	if (set(g, &st)) {
		g->failed = false;
		if (stat(g->node, &st) == 0)
			g->changed = st.st_ctim;
		return 0;
	}
	int error = errno;
	if (g->failed)
		return 0;
	g->failed = true;
	return err_sys(err, error,
		       "%s: who may open it cannot be changed, and so not be kept to those with tickets; "
		       "[device] acl "
		       "wants npud to be its owner (systemd/npud.rules)",
		       g->node);
}
