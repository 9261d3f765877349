#include "admins.h"
#include "own.h"
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

int admins_load(struct admins *a, const char *group, struct err *err)
{
	struct admins fresh = {0};

	snprintf(fresh.group, sizeof fresh.group, "%s", group);
	if (group[0]) {
		const struct group *g = getgrnam(group);
		if (!g)
			return err_set(err, NPU_E_BAD_CONFIG,
				       "[daemon] admin_group is \"%s\": there is no such group; create it or "
				       "leave the key out",
				       group);
		fresh.gid = g->gr_gid;
		size_t names = 0;
		while (g->gr_mem[names])
			names++;
		fresh.uids = calloc(names ? names : 1, sizeof *fresh.uids);
		if (!fresh.uids)
			return err_set(err, NPU_E_NO_MEMORY, "no memory for the members of group %s", group);
		/* A member without an account cannot connect: left out. */
		for (size_t i = 0; i < names; i++) {
			const struct passwd *user = getpwnam(g->gr_mem[i]);
			if (user)
				fresh.uids[fresh.count++] = user->pw_uid;
		}
	}
	admins_fini(a);
	*a = fresh;
	return 0;
}

void admins_fini(struct admins *a)
{
	free(a->uids);
	*a = (struct admins){0};
}

bool admins_has(const struct admins *a, uid_t uid, gid_t gid)
{
	if (uid == 0 || uid == getuid() || (a->group[0] && gid == a->gid))
		return true;
	for (size_t i = 0; i < a->count; i++)
		if (a->uids[i] == uid)
			return true;
	return false;
}
