/*
 * npu.h: the public contract of libnpu, the client of npud. Light: no weights, starts in milliseconds.
 *
 * Failure. Every function that can fail returns 0 or a negative NPU_E_ number of npu_errors.def and leaves a
 * sentence in npu_error_text.
 *
 * Threads. Several may use one npu_client and its heads at once; their requests are in flight together.
 * Closing a client or a head is for one thread while no other is inside a function of it. An npu_call is one
 * thread's: that which dispatches. Sentences are kept per thread.
 *
 * Processes. A child made by fork() must not use libnpu when its parent has (every call is refused, npu_close
 * only frees); fork before npu_connect, or exec: descriptors are close-on-exec.
 *
 * Tickets. Where NPU_TICKET is in the environment, what is sent is sent under that ticket, and refused when
 * it is over (NPU_E_TICKET_OVER).
 *
 * Loss. A daemon that restarts is found again by the next call, up to 5 s later. Heads, models and weights of
 * before are gone then: their calls fail as NPU_E_CONNECTION_LOST until they are opened again.
 */
#ifndef NPU_H
#define NPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef NPU_ERRORS
#define NPU_ERRORS
enum npu_error {
	NPU_OK = 0,
#define ERROR(number, name, class, sentence) NPU_E_##name = -(number),
#include "npu_errors.def"
#undef ERROR
};
#endif

typedef struct npu_client npu_client;
typedef struct npu_head npu_head;
typedef struct npu_call npu_call;

/*
 * Connects and says hello. `socket` NULL: $NPUD_SOCKET, else the first of the user's and the system's
 * sockets that accepts. `name` is what the daemon shows of this program (NULL: "libnpu").
 * On failure *out is NULL when there is no memory, otherwise a client that only serves
 * npu_error_text and npu_close. NPU_E_NO_DAEMON says where it looked.
 */
int npu_connect(npu_client **out, const char *socket, const char *name);
/* NULL is fine. Gives back everything, heads included; calls not finished call back as CANCELLED. */
void npu_close(npu_client *c);

/* Of this thread's last failure; "" before any. Valid until this thread's next. */
const char *npu_error_text(const npu_client *c);
/* What is known of that failure beside the sentence; 0 and "" where nothing is. */
struct npu_error_detail {
	uint64_t needed, limit; /* bytes, values or items, against what is there or allowed */
	uint64_t depth;		/* what is in use: requests in flight, handles, connections */
	uint64_t retry_ms;	/* after which it is worth asking again */
	char file[129], tensor[129];
};
void npu_error_detail(struct npu_error_detail *out);
const char *npu_error_name(int code);	     /* "NO_DAEMON" */
const char *npu_socket(const npu_client *c); /* where it is connected */
const char *npu_daemon_version(const npu_client *c);
const char *npu_device(const npu_client *c); /* "none" */
const char *npu_library_version(void);
/*
 * Milliseconds the daemon may take for one request before NPU_E_TIMED_OUT (default 60000, also for ms < 1);
 * it is told then, and gives the request up. Opening a head takes as long as it takes.
 */
void npu_set_timeout(npu_client *c, int ms);

int npu_ping(npu_client *c, double *seconds);

struct npu_head_options {
	const char *tensor; /* NULL: the model's head */
	const char *layout; /* NULL: what the device takes, or else "blocked"; "blocked", "row-major" */
	uint32_t tile;	    /* columns of a tile; 0: the default geometry */
	bool transpose;	    /* the tensor is stored [H][NV] */
	const char *q8;	    /* order of the codes in Q4NX chunks of 8704 bytes: NULL or "auto", "a", "b" */
	bool is_signed;	    /* 4-bit Q4NX codes are signed: the source was GGUF Q4_0 */
	uint32_t k;	    /* H of a Q4NX matrix; 0: as the file's embedding has it */
	bool no_store;	    /* the image store is neither read nor written; so too with NPUD_STORE=0 */
	/* Called from npu_head_open while tiles are packed; returning non-zero cancels. NULL: none. */
	int (*progress)(void *arg, uint64_t tiles_done, uint64_t tiles);
	void *progress_arg;
};

struct npu_head_info {
	uint32_t nv, h, kpad, tile, tiles;
	char layout[16], tensor[128], type[32], why[16]; /* why: "named", "untied", "tied" */
	char note[161];					 /* what was decided without being told, or "" */
	char hash[33];					 /* content hash, hex */
	uint64_t bytes;					 /* resident */
	bool attached;					 /* was resident already */
	uint64_t packed;				 /* tiles packed for this open */
	uint64_t from_store;				 /* tiles taken from the image store */
	uint64_t written;				 /* packed tiles that are in the store by now */
	uint64_t writing;	   /* ... that are still being written (npu_head_stored) */
	uint64_t refused;	   /* tiles of the store that were not used */
	char refusals[1024];	   /* why: a line each, "REASON: sentence", as far as they fit */
	uint64_t gathered_columns; /* columns read to be packed, samples included */
	bool hashed;		   /* the file was read whole, for its hash; false: it is as when it was */
	uint64_t nonfinite;	   /* weights that were not finite and count as 0 */
	double seconds;
};

/*
 * Opens the files of `model` itself, passes the descriptors and waits until the head is resident. `model` is
 * a file (any shard of several), a directory as Hugging Face, FastFlowLM or llama.cpp lay it out, or the name
 * of a model in their or Ollama's usual places, as in npu-head(1). `info` may be NULL.
 */
int npu_head_open(npu_client *c, const char *model, const struct npu_head_options *options, npu_head **out,
		  struct npu_head_info *info);
/* Waits until what was packed for `head` is in the image store, or will never be, and fills `info`. */
int npu_head_stored(npu_head *head, struct npu_head_info *info);
int npu_head_close(npu_head *head); /* NULL is fine; `head` is gone even where it fails */

/* What is in a model. */
struct npu_model_info {
	char label[129]; /* what the model is called */
	char format[17]; /* "safetensors", "GGUF" ... */
	uint64_t files, tensors;
	char head[513]; /* the head's name; "": there is none */
	char why[17];	/* "untied", "tied"; "" where there is none */
	char note[513]; /* why there is no head, or it cannot be used; "": it can */
};

struct npu_tensor_row {
	uint64_t number; /* from 1 */
	const char *name, *type, *file;
	uint32_t rank; /* dimensions, of which `shape` has the first 8, slowest first */
	uint64_t shape[8];
	uint64_t bytes;
	bool head;
};

/*
 * Reads what is in `model`, named as for npu_head_open: fills `info`, then calls `each` (may be NULL) once a
 * tensor and stops with its result when that is not 0. A sound model without a head that can be used is no
 * failure; NPU_E_BAD_CONTAINER is one that is not sound.
 */
int npu_model_tensors(npu_client *c, const char *model, struct npu_model_info *info,
		      int (*each)(void *arg, const struct npu_tensor_row *row), void *arg);

struct npu_run_info {
	uint64_t nonfinite; /* activations that were not finite and count as 0 */
	char path[16];	    /* "host" or "device" */
	char kernel[16];    /* "ref" */
	double queue_seconds, compute_seconds, cpu_seconds;
	uint64_t rows_in_pass;
	char why[129];	      /* why on that path */
	bool verified;	      /* another path gave the same bits */
	uint64_t launch_rows; /* rows that a launch computes, however few it is given; 0: on the host */
};

/*
 * Where later runs of the head go: "auto", "host", "device" or "alternate"; NULL, as from the start:
 * $NPUD_HEAD_PATH, or else the daemon's default. The results are the same; "device" is refused with
 * NPU_E_NO_PATH where it cannot be had. Not while a run of the head is under way in another thread.
 */
int npu_head_set_path(npu_head *head, const char *path);
/* Later runs are done on both paths and every bit is compared: NPU_E_DIFFERENCE says where they differ. */
void npu_head_set_verify(npu_head *head, bool verify);

/*
 * logits[rows][nv] = head(x[rows][h]), bit for bit as docs/numbers.md. More rows than a request or a
 * reply may hold are sent in several requests. `info` may be NULL.
 */
int npu_head_logits(npu_head *head, const float *x, size_t rows, float *logits, struct npu_run_info *info);

/* The k best words of each row, best first, ties to the lower id: ids[rows][k], values[rows][k]. k is at most
 * nv. */
int npu_head_top(npu_head *head, const float *x, size_t rows, uint32_t k, uint32_t *ids, float *values,
		 struct npu_run_info *info);

/*
 * Projection weights: what a layer multiplies with, resident and shared as heads are.
 *
 * A model's files, given to the daemon once: passed as descriptors, or uploaded where they
 * cannot be. What was loaded of it stays when it is closed. `model` as for npu_head_open.
 */
typedef struct npu_model npu_model;
int npu_model_open(npu_client *c, const char *model, npu_model **out);
int npu_model_close(npu_model *m); /* NULL is fine; `m` is gone even where it fails */

typedef struct npu_weights npu_weights;

struct npu_weights_options {
	const char *role; /* "0" QKV, "1" O, "2" gate+up, "3" up, "4" down, or a name; needed */
	uint32_t layer;
	bool transpose;	    /* stored [K][N] */
	const char *layout; /* the next five as in struct npu_head_options */
	uint32_t tile;
	const char *q8;
	bool is_signed;
	uint32_t k;
};

/*
 * Loads `count` tensors (1 to 8, stored [N][K], of one K) side by side as one matrix, or attaches to what is
 * resident with the same bytes, layer and role, and waits. `info` may be NULL; its h is K, its nv is N.
 */
int npu_weights_load(npu_model *m, const char *const *tensors, size_t count,
		     const struct npu_weights_options *options, npu_weights **out,
		     struct npu_head_info *info);
int npu_weights_close(npu_weights *w); /* NULL is fine; `w` is gone even where it fails */
/* As npu_head_set_path and npu_head_set_verify. */
int npu_weights_set_path(npu_weights *w, const char *path);
void npu_weights_set_verify(npu_weights *w, bool verify);

/* y[rows][N] = x[rows][K] times the weights, as npu_head_logits. */
int npu_gemm(npu_weights *w, const float *x, size_t rows, float *y, struct npu_run_info *info);
/*
 * The same by a routed expert of `k` and `n`, which is packed for this call and not kept: it never takes the
 * room of weights that come again. options->role begins with "-", and may be NULL.
 */
int npu_gemm_expert(npu_model *m, const char *const *tensors, size_t count,
		    const struct npu_weights_options *options, const float *x, size_t rows, uint32_t k,
		    float *y, uint32_t n, struct npu_run_info *info);

/* What the daemon knows about itself. */
struct npu_status {
	char version[33], device[33], health[17];
	uint64_t pid, uptime_ms, clients, heads, resident_bytes, requests, refused, rows, in_flight;
	char fingerprint[17]; /* of the daemon's packer, hexadecimal; empty where the daemon does not tell */
	char reason[512];     /* why the device is not "ok", and what to do */
	char trouble[512];    /* what went wrong with it last, well again or not; "": nothing */
	uint64_t trouble_ms;  /* so many milliseconds ago */
	uint64_t launches, faults; /* on the device; of them those that hung, failed or were wrong */
	uint64_t contexts_used, contexts_max; /* hardware contexts of all programs; 0, 0: not known */
	uint64_t passes;		      /* over weights, in which the rows were */
	uint64_t upload_bytes;		      /* of uploads, in memory or promised */
	uint64_t holding, waiting;	      /* tickets */
	uint64_t idle_ms;		      /* without work under a ticket that holds, of the longest */
	char kernel[17];		      /* what runs heads on the host */
	bool prefetch;	  /* it asks for weights ahead of their use, for that was measured to be faster */
	uint64_t threads; /* that run heads on the host */
	uint64_t pass_ms; /* the pass under way has taken, for whose end all other rows wait; 0: there is none
			   */
	bool draining;	  /* no ticket is granted: an administrator drains the daemon, or it ends */
};
int npu_status(npu_client *c, struct npu_status *out);

/* A geometry the device can run: a kernel. */
struct npu_design_row {
	uint64_t rows, kd, nd;
	const char *layout, *file, *kernel;
};
/* The device: how it is and what it has done since the daemon started; see npuctl(1). */
struct npu_device {
	char device[33], health[17], reason[512], version[64];
	char kernels[512]; /* where the daemon looks for a kernel set when it starts */
	bool context;	   /* the daemon holds a hardware context */
	uint64_t contexts_used, contexts_max;
	uint64_t launches, done, timeouts, errors, hangs, mismatches, rejected;
	uint64_t canaries, canaries_failed, contexts_opened, contexts_refused, recoveries, parked;
};
/* Also calls `each` (may be NULL) once a design; stops with its result when that is not 0. */
int npu_device_status(npu_client *c, struct npu_device *out,
		      int (*each)(void *arg, const struct npu_design_row *row), void *arg);

struct npu_client_row {
	uint64_t session, uid, pid, connected_ms, requests, heads, files, in_flight;
	const char *name, *version;
};
/* Calls `each` once a client; stops with its result when that is not 0. */
int npu_clients(npu_client *c, int (*each)(void *arg, const struct npu_client_row *row), void *arg);

struct npu_head_row {
	uint64_t id, nv, h, kpad, tile, tiles, bytes, users, rows;
	const char *label, *tensor, *type, *layout, *hash, *state;
	bool pinned; /* stays, used or not */
	bool goes;   /* nobody uses it: it goes after keep_ms, or sooner if others need the room */
	uint64_t keep_ms;
	uint64_t layer;	  /* of projection weights */
	const char *role; /* "head", or what projection weights are for */
};
int npu_heads(npu_client *c, int (*each)(void *arg, const struct npu_head_row *row), void *arg);
/* Resident projection weights, alike: h is K, nv is N. */
int npu_weights_list(npu_client *c, int (*each)(void *arg, const struct npu_head_row *row), void *arg);

/* What npu_head_open would need now; sizes are bytes. */
struct npu_plan {
	/*
	 * "resident" already; "fits"; "evicts" what nobody uses and then fits; "waits" for others to let go;
	 * refused as "too-large" for the budget, or because too much of it is "pinned".
	 */
	char outcome[17];
	uint64_t id;	    /* of the head, if it is resident */
	uint64_t bytes;	    /* of the weights */
	uint64_t transient; /* besides, while they are packed */
	uint64_t budget, used;
	uint64_t held, loading, pinned, freeable; /* of what is used */
};
/* Reads the model, as npu_head_open does, and loads nothing. `each` (may be NULL) is called for what would
 * go, in that order; the plan stops with its result when that is not 0. */
int npu_plan(npu_client *c, const char *model, const struct npu_head_options *options, struct npu_plan *out,
	     int (*each)(void *arg, const struct npu_head_row *row), void *arg);

struct npu_event_row {
	uint64_t number;  /* ever rising, from 1 when the daemon starts */
	uint64_t time_ms; /* since 1970 */
	uint64_t id;	  /* ticket or head it is about; 0: none */
	uint64_t session; /* 0: all */
	uint64_t uid;
	const char *kind, *text;
};
/*
 * The daemon's journal: calls `each` for all kept events after number `since`, and where there is none yet
 * waits up to `wait_ms` (at most 25000) for the next; stops with the result of `each` when that is not 0.
 * *lost (may be NULL): some were displaced, or the daemon restarted and what came is of its new life.
 */
int npu_events(npu_client *c, uint64_t since, uint32_t wait_ms, bool *lost,
	       int (*each)(void *arg, const struct npu_event_row *row), void *arg);

/* For administrators; NPU_E_NOT_ALLOWED says who that is. */
int npu_kick(npu_client *c, uint64_t session); /* ends another session */
/* `id` as npu_heads tells it. A pinned head stays until it is unpinned; evicting is refused as OBJECT_USED
 * while a session has it, and as PINNED. *bytes (may be NULL): what is free now. */
int npu_resident_evict(npu_client *c, uint64_t id, uint64_t *bytes);
int npu_resident_pin(npu_client *c, uint64_t id);
int npu_resident_unpin(npu_client *c, uint64_t id);
int npu_reload(npu_client *c); /* has the daemon read its configuration again */

/* A head in the image store. Times in milliseconds since 1970. */
struct npu_stored_row {
	unsigned char key[25]; /* names it */
	uint64_t kpad, tile, tiles, columns, bytes, hits, created_ms, used_ms;
	bool superseded; /* its model was opened again with other weights */
	bool resident;
	const char *hash, *label, *tensor, *layout;
};
struct npu_store {
	char off[512];	   /* why there is none; "": there is one */
	char path[4096];   /* its directory */
	char moved[4352];  /* where a damaged one was moved when the daemon started, and why; "" */
	char refused[512]; /* since then: lines of a reason and how many tiles */
	uint64_t max_bytes, heads, bytes, superseded_bytes;
	uint64_t file_bytes, free_bytes;		/* of its file; in it, to be used again */
	uint64_t hits, misses, written, write_failures; /* tiles since the daemon's start */
	uint64_t copied_bytes; /* of the copy that npu_store_compact is making now; 0: none */
};
/* How the store is, and `each` (may be NULL) once a head; stops with its result when that is not 0. */
int npu_store_list(npu_client *c, struct npu_store *out,
		   int (*each)(void *arg, const struct npu_stored_row *row), void *arg);

struct npu_stored_tile_row {
	uint64_t number, columns, chunks, nonfinite, created_ms; /* number from 1 */
	bool there;
	const char *fingerprint; /* of the packer that made it */
};
/* The tiles of a head, as their headers say. NPU_E_NO_SUCH_HANDLE where it is not there. */
int npu_store_show(npu_client *c, const unsigned char key[25],
		   int (*each)(void *arg, const struct npu_stored_tile_row *row), void *arg);

/*
 * For administrators: piece `piece`, from 0, of tile `tile`, from 0, into `to` (NPU_STORE_PIECE bytes): codes
 * as the layout has them, without zeros at their end, and behind the last of them, with *scales, the scales.
 * NPU_E_NO_SUCH_HANDLE behind the last, NPU_E_BAD_IMAGE where it is damaged.
 */
#define NPU_STORE_PIECE (8u << 20)
int npu_store_read(npu_client *c, const unsigned char key[25], uint32_t tile, uint32_t piece, void *to,
		   size_t *size, bool *scales);

struct npu_stored_bad_row {
	uint64_t tile; /* from 0 */
	bool removed;  /* the head it belongs to was taken out */
	const char *hash, *label, *reason, *text;
};
struct npu_store_verified {
	uint64_t tiles, bytes, bad;
};
/*
 * For administrators: hashes every tile, and with `remove` takes heads out that have a bad one; each is
 * packed again when it is opened. `bad` once a bad tile, `progress` (may be NULL) every few hundred
 * megabytes; stops with their result when that is not 0. `done` may be NULL.
 */
int npu_store_verify(npu_client *c, bool remove, struct npu_store_verified *done,
		     int (*bad)(void *arg, const struct npu_stored_bad_row *row),
		     int (*progress)(void *arg, const struct npu_store_verified *done), void *arg);
/* For administrators: takes out every head that is not resident, or only superseded ones. */
int npu_store_prune(npu_client *c, bool superseded, uint64_t *heads, uint64_t *bytes);
/* For administrators: gives back what is free in the store's file. NPU_E_IO where the disk has no room for
 * the copy. */
int npu_store_compact(npu_client *c, uint64_t *before, uint64_t *after);

/*
 * Asynchronous calls. NAME_start begins what NAME does; arguments are checked and files opened at once, and a
 * failure to begin is returned and nothing more comes. Otherwise `done` is called once, by npu_dispatch or
 * npu_close, with what NAME would have returned. Activations, results and `info` stay the caller's to keep
 * until then; strings and options are copied. `call` may be NULL; *call is valid until `done` returns. `done`
 * may begin further calls and cancel others, not close the client.
 */
typedef void npu_done(void *arg, npu_call *call, int result);

int npu_ping_start(npu_client *c, double *seconds, npu_done *done, void *arg, npu_call **call);
int npu_head_open_start(npu_client *c, const char *model, const struct npu_head_options *options,
			npu_head **out, struct npu_head_info *info, npu_done *done, void *arg,
			npu_call **call);
int npu_head_logits_start(npu_head *head, const float *x, size_t rows, float *logits,
			  struct npu_run_info *info, npu_done *done, void *arg, npu_call **call);
int npu_head_top_start(npu_head *head, const float *x, size_t rows, uint32_t k, uint32_t *ids, float *values,
		       struct npu_run_info *info, npu_done *done, void *arg, npu_call **call);
int npu_gemm_start(npu_weights *w, const float *x, size_t rows, float *y, struct npu_run_info *info,
		   npu_done *done, void *arg, npu_call **call);

/* A descriptor for poll(), readable while npu_dispatch has something to do; the client's. Negative: an error.
 */
int npu_fd(npu_client *c);

/*
 * Calls `done` of finished calls, on this thread; without any waits up to `wait_ms` for the first (0: not at
 * all, -1: for ever). Returns how many it called, or an error. Calls of several requests need it to go on.
 */
int npu_dispatch(npu_client *c, int wait_ms);

/* Tells the daemon and has the call end soon, as NPU_E_CANCELLED unless it was faster. */
void npu_call_cancel(npu_call *call);

/*
 * Tickets: who has the NPU now. One is asked for, waits in the queue, is offered, and has the NPU once it is
 * confirmed, until it is released, its time is up, or this process ends. An npu_ticket is one thread's.
 */
typedef struct npu_ticket npu_ticket;

struct npu_ticket_options {
	bool shared;		     /* others with shared tickets may hold beside it */
	const char *priority;	     /* its class: NULL or "normal"; "realtime", "interactive", "batch" */
	uint64_t duration_ms;	     /* of the lease; 0: the daemon's default */
	uint64_t grace_ms;	     /* to finish after its end; 0: the daemon's */
	bool endless;		     /* no end until another waits; shared only */
	bool alone;		     /* not while a program without a ticket uses the NPU */
	bool tree;		     /* passes on when its processes have ended, see npu_ticket_confirm */
	bool now;		     /* NPU_E_HELD instead of a place in the queue */
	const char *label, *command; /* for people; cut at 63 and 127 bytes */
	const char *join;	     /* a ticket as NPU_TICKET has it, whose hold to join; NULL: none */
};

/* Times in milliseconds, from or until the answer. */
struct npu_ticket_info {
	uint64_t ticket, version, number, joined, holder, uid, pid, place, waited_ms, bound_ms, duration_ms,
		grace_ms, held_ms, remaining_ms, idle_ms;
	bool connected, tree, alone, endless;
	char state[17]; /* queued, offered, granted, expiring; over: released, expired, revoked, lost */
	char mode[17], priority[17], priority_now[17], label[64], command[128], reason[97], why[257];
	char beside[256]; /* who uses the NPU without a ticket beside one that holds, as seen last */
};

/* The next four in one, waiting `wait_ms` (-1: for ever) for the grant. What they return, TIMED_OUT. */
int npu_ticket_take(npu_client *c, const struct npu_ticket_options *options, int wait_ms, npu_ticket **out,
		    struct npu_ticket_info *info);

/* A place in the queue. QUEUE_FULL, HELD, BAD_VALUE, TICKET_OVER (of `join`). `options`, `info` may be NULL.
 */
int npu_ticket_request(npu_client *c, const struct npu_ticket_options *options, npu_ticket **out,
		       struct npu_ticket_info *info);
/* Waits up to `wait_ms`, 25 s at most, until something is other than `info` says, and says it there. */
int npu_ticket_wait(npu_ticket *t, int wait_ms, struct npu_ticket_info *info);
int npu_ticket_wait_start(npu_ticket *t, int wait_ms, struct npu_ticket_info *info, npu_done *done, void *arg,
			  npu_call **call);
/*
 * Takes what is offered: the lease begins. TICKET_OVER: the offer had lapsed, wait again. For a ticket with a
 * tree: `keeper` is a process that ends the tree should this one die (0: none), `cgroup` the directory of one
 * that will hold it (NULL: none).
 */
int npu_ticket_confirm(npu_ticket *t, uint64_t keeper, const char *cgroup, struct npu_ticket_info *info);
/* A new end, from now. HELD where somebody waits. */
int npu_ticket_renew(npu_ticket *t, uint64_t duration_ms, struct npu_ticket_info *info);
/* Gives it back, or leaves the queue. NULL is fine; `t` is gone even where it fails. */
int npu_ticket_release(npu_ticket *t);

/* What NPU_TICKET is to be for processes that work under it: clients of theirs take it from there. */
#define NPU_TICKET_TEXT 64
const char *npu_ticket_text(const npu_ticket *t, char to[NPU_TICKET_TEXT]);

/* Those that hold or wait, by number; stops with the result of `each`. `draining` may be NULL. */
int npu_tickets(npu_client *c, int (*each)(void *arg, const struct npu_ticket_info *row), void *arg,
		bool *draining);
int npu_ticket_show(npu_client *c, uint64_t ticket, struct npu_ticket_info *info);

struct npu_foreign_row {
	uint64_t pid, uid;
	char command[64];
};
/* Why it waits: who holds and who is before it, in order, and who is there without a ticket. */
int npu_ticket_why(npu_client *c, uint64_t ticket, struct npu_ticket_info *info,
		   int (*before)(void *arg, const struct npu_ticket_info *row),
		   int (*foreign)(void *arg, const struct npu_foreign_row *row), void *arg);
/* One's own, or anybody's for administrators. */
int npu_ticket_revoke(npu_client *c, uint64_t ticket, const char *reason, struct npu_ticket_info *info);

/* For administrators. */
int npu_ticket_move(npu_client *c, uint64_t ticket, uint64_t place, struct npu_ticket_info *info);
int npu_drain(npu_client *c, uint64_t *holding);
int npu_resume(npu_client *c, uint64_t *waiting);

struct npu_who {
	char node[256];
	bool there;
	uint64_t hidden;       /* processes that npud may not look into */
	char lock[256];	       /* the file that tools lock around their launches; "": none is used */
	char lock_keeper[128]; /* who keeps it locked now, npud included; "": nobody, as far as is seen */
	uint64_t contexts_used, contexts_max; /* hardware contexts of all programs now; 0, 0: not known */
	uint64_t contexts_own;		      /* of those in use npud's */
};
/* Processes that have the device's node open and no ticket. */
int npu_who(npu_client *c, struct npu_who *out, int (*each)(void *arg, const struct npu_foreign_row *row),
	    void *arg);

/* Counters and gauges of the daemon as OpenMetrics text, which is to be freed by free(). */
int npu_metrics(npu_client *c, char **text);

struct npu_usage_row {
	uint64_t uid, tickets;
	double held_seconds, computed_seconds; /* halved every day */
};
/* What each user has had of the NPU. */
int npu_usage(npu_client *c, int (*each)(void *arg, const struct npu_usage_row *row), void *arg);

#ifdef __cplusplus
}
#endif
#endif
