/*
 * What npud needs of an NPU, as one table of functions with two implementations: soft.h, and xrt.h, which is
 * loaded at run time. A launch computes C[rows][nd] int32 = A[rows][kd] int8 x B[kd][nd] int8 for one tile.
 * A table may be called from any thread; two calls on the same context, buffer or run must not overlap. Calls
 * that speak to the driver may block as long as the driver likes: who must not wait calls from a thread that
 * may. Nothing is thrown out of it, and every failure leaves a sentence in `why`.
 */
#ifndef NPUD_DEVICE_H
#define NPUD_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum device_error {
	DEVICE_OK = 0,
	DEVICE_E_ABSENT = -1,	  /* no such device, or no library that speaks to it */
	DEVICE_E_DENIED = -2,	  /* the node or the locked memory is not ours to use */
	DEVICE_E_NO_CONTEXT = -3, /* every hardware context is taken: later, perhaps */
	DEVICE_E_NO_MEMORY = -4,  /* for the buffer asked for */
	DEVICE_E_BAD_KERNEL = -5, /* the image cannot be used here */
	DEVICE_E_BAD_CALL = -6,	  /* a range outside of its buffer, settings that cannot be read */
	DEVICE_E_FAULT = -7,	  /* the device or its driver failed */
};

/* Of a run. All but BUSY are final: the device has let go of the run's buffers. */
enum device_state { DEVICE_BUSY, DEVICE_COMPLETED, DEVICE_TIMED_OUT, DEVICE_FAILED };

/* Which argument of a launch a buffer is for. */
enum device_use { DEVICE_A, DEVICE_B, DEVICE_C };

enum device_direction { DEVICE_TO, DEVICE_FROM };

enum device_image { DEVICE_XCLBIN, DEVICE_ELF };

#define DEVICE_PATH_MAX 512

/* What a context computes and with which kernel: one entry of a kernel set. */
struct design {
	uint32_t rows, kd, nd;
	uint32_t layout; /* of B, an `enum layout` of kernels.h: 0 row-major, 1 blocked */
	enum device_image image;
	char file[DEVICE_PATH_MAX];
	char kernel[64];		    /* its name in the image */
	char instructions[DEVICE_PATH_MAX]; /* "" for an ELF, which holds its own */
};

struct device_why {
	char text[384];
};

struct device_limits {
	uint32_t contexts_used,
		contexts_max; /* of all programs of the machine; 0, 0 where the driver does not tell */
	uint64_t heap_bytes;  /* for buffers; 0 where no limit is known */
	char version[64];     /* of the library beneath */
};

struct device;
struct device_context;
struct device_buffer;
struct device_run;

#define DEVICE_ABI 1u /* of this table; another one is refused when a module is loaded */

struct device_table {
	uint32_t abi;
	const char *name;

	/* `settings` are words the backend knows; "" is good. ABSENT, DENIED, BAD_CALL. */
	int (*open)(struct device **out, const char *settings, struct device_why *why);
	/* Every context, buffer and run of it must be gone. */
	void (*close)(struct device *d);
	void (*limits)(struct device *d, struct device_limits *out);

	/*
	 * Loads the design (the caller has validated its files) and takes a hardware context. NO_CONTEXT,
	 * BAD_KERNEL, NO_MEMORY, FAULT.
	 */
	int (*context_open)(struct device_context **out, struct device *d, const struct design *design,
			    struct device_why *why);
	/* Its unfinished runs stay valid, and keep the hardware context until they are freed. */
	void (*context_close)(struct device_context *c);

	/*
	 * Memory that the device reaches and the host sees at `map`, zeroed, page aligned; it outlives
	 * contexts, and needs none. Where XRT asks which memory a kernel uses, that is the kernel of the
	 * context opened last.
	 */
	int (*buffer_new)(struct device_buffer **out, struct device *d, enum device_use use, size_t size,
			  void **map, struct device_why *why);
	/* Makes bytes from..from+size written by one side visible to the other. BAD_CALL outside the buffer.
	 */
	int (*buffer_sync)(struct device_buffer *b, enum device_direction to, size_t from, size_t size,
			   struct device_why *why);
	/* No run that uses it may be unfinished. */
	void (*buffer_free)(struct device_buffer *b);

	/* Starts C = A x B. The buffers must be large enough for the design, A and B synced. FAULT. */
	int (*launch)(struct device_run **out, struct device_context *c, struct device_buffer *a,
		      struct device_buffer *b, struct device_buffer *to, struct device_why *why);
	/* Returns when the run is final, or after `ms` milliseconds; 0 asks for the state now. */
	enum device_state (*wait)(struct device_run *r, uint32_t ms);
	/* The run must be final. */
	void (*run_free)(struct device_run *r);
};

#ifdef __cplusplus
}
#endif

#endif
