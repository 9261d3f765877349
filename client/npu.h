/*
 * npu.h: the public contract of libnpu, the client of npud. Light: no weights, starts in milliseconds.
 *
 * An npu_client may be used by one thread at a time; different clients by different threads at once.
 * Every function that can fail returns 0 or a negative NPU_E_ number of npu_errors.def and leaves a
 * sentence in npu_error_text(client).
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

/*
 * Connects and says hello. `socket` NULL: $NPUD_SOCKET, else the first of the user's and the system's
 * sockets that accepts. `name` is what the daemon shows of this program (NULL: "libnpu").
 * On failure *out is NULL when there is no memory, otherwise a client that only serves
 * npu_error_text and npu_close. NPU_E_NO_DAEMON says where it looked.
 */
int npu_connect(npu_client **out, const char *socket, const char *name);
void npu_close(npu_client *c); /* NULL is fine; gives back everything, heads included */

const char *npu_error_text(const npu_client *c); /* of the last failure; "" before any */
const char *npu_error_name(int code);		 /* "NO_DAEMON" */
const char *npu_socket(const npu_client *c);	 /* where it is connected */
const char *npu_daemon_version(const npu_client *c);
const char *npu_device(const npu_client *c); /* "none" */
const char *npu_library_version(void);
/* Milliseconds one call may take before NPU_E_TIMED_OUT (default 60000, also for ms < 1; opening a
 * head takes as long as it takes). */
void npu_set_timeout(npu_client *c, int ms);

int npu_ping(npu_client *c, double *seconds);

struct npu_head_options {
	const char *tensor; /* NULL: the model's head */
	const char *layout; /* NULL or "blocked", or "row-major" */
	uint32_t tile;	    /* columns of a tile; 0: the default geometry */
	bool transpose;	    /* the tensor is stored [H][NV] */
	const char *q8;	    /* order of the codes in Q4NX chunks of 8704 bytes: NULL or "auto", "a", "b" */
	bool is_signed;	    /* 4-bit Q4NX codes are signed: the source was GGUF Q4_0 */
	uint32_t k;	    /* H of a Q4NX matrix; 0: as the file's embedding has it */
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
	uint64_t nonfinite;				 /* weights that were not finite and count as 0 */
	double seconds;
};

/* Opens `path` itself, passes the descriptor and waits until the head is resident. `info` may be NULL. */
int npu_head_open(npu_client *c, const char *path, const struct npu_head_options *options, npu_head **out,
		  struct npu_head_info *info);
int npu_head_close(npu_head *head); /* NULL is fine; `head` is gone even where it fails */

struct npu_run_info {
	uint64_t nonfinite; /* activations that were not finite and count as 0 */
	char path[16];	    /* "host" */
	char kernel[16];    /* "ref" */
	double queue_seconds, compute_seconds, cpu_seconds;
	uint64_t rows_in_pass;
};

/*
 * logits[rows][nv] = head(x[rows][h]), bit for bit as docs/numbers.md. More rows than a request or a
 * reply may hold are sent in several requests. `info` may be NULL.
 */
int npu_head_logits(npu_head *head, const float *x, size_t rows, float *logits, struct npu_run_info *info);

/* The k best words of each row, best first, ties to the lower id: ids[rows][k], values[rows][k]. k is at most
 * nv. */
int npu_head_top(npu_head *head, const float *x, size_t rows, uint32_t k, uint32_t *ids, float *values,
		 struct npu_run_info *info);

/* What the daemon knows about itself; text is valid until the next call on this client. */
struct npu_status {
	const char *version, *device, *health;
	uint64_t pid, uptime_ms, clients, heads, resident_bytes, requests, refused, rows, in_flight;
};
int npu_status(npu_client *c, struct npu_status *out);

struct npu_client_row {
	uint64_t session, uid, pid, connected_ms, requests, heads, files, in_flight;
	const char *name, *version;
};
/* Calls `each` once a client; stops with its result when that is not 0. */
int npu_clients(npu_client *c, int (*each)(void *arg, const struct npu_client_row *row), void *arg);

struct npu_head_row {
	uint64_t id, nv, h, kpad, tile, tiles, bytes, users, rows;
	const char *label, *tensor, *type, *layout, *hash, *state;
};
int npu_heads(npu_client *c, int (*each)(void *arg, const struct npu_head_row *row), void *arg);

#ifdef __cplusplus
}
#endif
#endif
