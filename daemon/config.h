/* The configuration: one INI file, every key with a default. Read before the loop starts. */
#ifndef NPUD_CONFIG_H
#define NPUD_CONFIG_H

#include "err.h"
#include <limits.h>

/* [tenant NAME]: a server of somebody else's that is paused while there is an exclusive ticket. */
struct config_tenant {
	char name[32];
	char pause[512], resume[512]; /* for sh -c */
	uint64_t timeout;	      /* seconds either may take */
};
#define CONFIG_TENANTS 8u

/* [preload] NAME = MODEL: a head that is opened at the start, and pinned. */
struct config_preload {
	char name[64];
	char model[1024]; /* a file, a directory, or the name of a model */
};
#define CONFIG_PRELOADS 16u

struct config {
	char socket[PATH_MAX];	  /* [daemon] socket */
	char cache_dir[PATH_MAX]; /* [daemon] cache_dir */
	char state_dir[PATH_MAX]; /* [daemon] state_dir */
	char group[64];		  /* [daemon] group: whose members may connect; empty: the owner's only */
	char admin_group[64]; /* [daemon] admin_group: who may do what concerns others; empty: root and the
				 owner */
	char device[16];      /* [device] kind: auto, xrt, soft or none */
	char device_settings[512]; /* [device] settings: words for the kind */
	uint64_t launch_ms;	   /* [device] launch_ms: a launch that takes longer hangs */
	uint64_t device_recovery;  /* [device] recovery: seconds; at most one in this time */
	char device_node[256];	   /* [device] node: of the NPU, for who has it open */
	uint64_t device_acl;	   /* [device] acl: holders of tickets may open it, and nobody else */
	char npu_lock[256];	   /* [device] lock: that tools take around launches; empty: none is used */
	char kernels[256];	   /* [device] kernels: directory of the kernel set; empty: kernels in
				      state_dir, if there is one */
	char module[256];	   /* [device] module: npud-xrt.so */
	uint64_t store_enabled;	   /* [store] enabled */
	char store_path[PATH_MAX]; /* [store] path; empty: cache_dir/images */
	uint64_t store_bytes;	   /* [store] max_bytes: of all images */
	uint64_t store_free_bytes; /* [store] min_free_bytes: of the file system, below which it does not grow
				    */
	uint64_t metrics_port;	   /* [metrics] port: of 127.0.0.1, for HTTP; 0: none */
	uint64_t threads;	   /* [head] threads: of a pass and of packing; no more than processors */
	uint64_t batch;		   /* [head] batch: rows of one pass at most */
	char head_path[16];	   /* [head] path: of runs that ask for none */
#define CONFIG_FOR_EVER UINT64_MAX
	uint64_t keep;		   /* [resident] keep: seconds what nobody uses stays, or CONFIG_FOR_EVER */
	uint64_t resident_bytes;   /* [resident] max_bytes: of all packed heads; default half of the memory */
	uint64_t connections;	   /* [limits] connections: at once */
	uint64_t in_flight;	   /* [limits] in_flight: requests of one connection at once */
	uint64_t in_flight_all;	   /* [limits] in_flight_all: of all connections */
	uint64_t user_connections; /* [limits] user_connections: of one user */
	uint64_t user_in_flight;   /* [limits] user_in_flight: requests of one user */
	uint64_t handles;	   /* [limits] handles: heads and files one user may have open */
	uint64_t user_upload;	   /* [limits] user_upload: bytes of uploads of one user */
	uint64_t user_replies;	   /* [limits] user_replies: bytes of answers that one user has yet to take */
	uint64_t ticket_default, ticket_max; /* [ticket] default, max: seconds of a lease */
	uint64_t ticket_grace;		     /* [ticket] grace: seconds to finish after its end */
	uint64_t ticket_aging;	      /* [ticket] aging: seconds after which a waiting one rises a class */
	uint64_t ticket_shared_slots; /* [ticket] shared_slots: shared ones at once */
	uint64_t ticket_queue, ticket_per_user; /* [ticket] queue, per_user: tickets of all, of one user */
	uint64_t ticket_idle_release; /* [ticket] idle_release: seconds of doing nothing; 0: never */
	uint64_t ticket_resume;	      /* [ticket] resume: seconds for which what a client held outlives its
					 connection */
	struct config_tenant tenants[CONFIG_TENANTS];
	uint32_t tenant_count;
	struct config_preload preloads[CONFIG_PRELOADS];
	uint32_t preload_count;
};

/*
 * The defaults for this user, with NPUD_SOCKET and NPUD_CONFIG heeded: socket in $XDG_RUNTIME_DIR/npud,
 * else /run/user/UID/npud, else /tmp/npud-UID; cache in $XDG_CACHE_HOME/npud; state in $XDG_STATE_HOME/npud.
 */
void config_defaults(struct config *c);

/* Reads `path` over what is in `c`. BAD_CONFIG with file, line and the nearest known key. */
int config_read(struct config *c, const char *path, struct err *err);

/* Where the configuration comes from: the texts of the command line, or NULL, which outlive the daemon. */
struct config_source {
	const char *file, *socket, *cache_dir, *state_dir;
};

/* The defaults, the file over them, the command line over that. BAD_CONFIG; BAD_VALUE where the command line
 * is wrong. */
int config_load(struct config *c, const struct config_source *from, struct err *err);

/*
 * Takes over from `fresh` what can change while the daemon runs. `kept` gets the names of the keys that
 * differ and need a restart ("" where there is none), cut at `room`.
 */
void config_adopt(struct config *running, const struct config *fresh, char *kept, size_t room);

/* Where a kernel set is looked for: `kernels`, or else kernels in the state directory; "" where that is too
 * long. */
void config_kernels(const struct config *c, char *to, size_t room);

/* Makes the directories (0700 where they are new) and refuses those that others may write. */
int config_places(const struct config *c, struct err *err);

#endif
