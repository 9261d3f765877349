/*
 * Errors: one number from errors.def and one sentence made where the failure was seen.
 * Any thread; a `struct err` belongs to the caller. Functions return 0 or a negative NPU_E_ number
 * and fill the caller's `struct err` exactly when they fail.
 */
#ifndef NPUD_ERR_H
#define NPUD_ERR_H

#include <stdarg.h>
#include <stdint.h>
#include <stdbool.h>
#include <stddef.h>

#ifndef NPU_ERRORS /* npu.h, installed alone, has the same list */
#define NPU_ERRORS
enum npu_error {
	NPU_OK = 0,
#define ERROR(number, name, class, sentence) NPU_E_##name = -(number),
#include "errors.def"
#undef ERROR
};
#endif

enum err_class { ERR_REPLY, ERR_CLOSE, ERR_FATAL };

/* What a program may want of a refusal without parsing the sentence; 0 and "" mean "not said". */
struct err_detail {
	uint64_t needed; /* bytes, values or items that were needed ... */
	uint64_t limit;	 /* ... against what is there or allowed */
	uint64_t depth;	 /* requests in flight, for BUSY */
	uint64_t retry_ms;
	uint64_t holder, holder_uid, remaining_ms, place; /* of the NPU: the ticket that holds it */
	char file[129];
	char tensor[129];
};

struct err {
	int code;
	char text[512];
	struct err_detail detail;
};

/* Sets code and sentence ("what: why; what to do"), clears the detail; returns the code. */
int err_set(struct err *e, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same for a failed system call: `number` is errno, said in words and turned into ours. */
int err_sys(struct err *e, int number, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* vsnprintf that does not cut a character of UTF-8 in two: what does not fit goes as a whole. */
void err_format(char *to, size_t room, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));

/* NAME, class and general sentence of a code (negative); unknown codes are "INTERNAL". */
const char *err_name(int code);
enum err_class err_class(int code);
const char *err_sentence(int code);

/*
 * A printable copy of bytes that a stranger chose (a tensor's name, a label) for a message or a
 * terminal: quotes and what plain.h does not show become \xNN; cut at `room` with "...". Made printable
 * twice (by a client and by the daemon) it is as made printable once. Returns `to`.
 */
const char *err_printable(char *to, size_t room, const char *from, size_t size);

/* True where the bytes are well-formed UTF-8 (RFC 3629: no over-long forms, no surrogates). */
bool err_is_utf8(const char *from, size_t size);

#endif
