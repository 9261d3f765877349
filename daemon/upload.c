#include "upload.h"
#include "memory.h"
#include "own.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

struct upload {
	struct server *server;
	uid_t uid;
	uint64_t size, got;
	unsigned refs;
	bool ended;
};

/* The machine has the room for the latest, beside what is being loaded and what other uploads have yet to
 * send. */
static int check_room(const struct server *s, const char *name, uint64_t size, struct err *err)
{
	uint64_t room = memory_room(""),
		 promised = s->upload_missing - size + residency_sums(&s->residency).loading;

	room -= promised < room ? promised : room;
	if (size <= room)
		return 0;
	err_set(err, NPU_E_NO_MEMORY,
		"%s: an upload of %" PRIu64 " bytes; the machine has %" PRIu64 " left, beside %" PRIu64
		" promised to loads and uploads under way: ask again later, or pass a descriptor",
		name, size, room, promised);
	err->detail.needed = size;
	err->detail.limit = room;
	return err->code;
}

void upload_hold(struct upload *u)
{
	u->refs++;
}

void upload_release(struct upload *u)
{
	if (!u || --u->refs)
		return;
	u->server->upload_missing -= u->size - u->got;
	u->server->upload_bytes -= u->size;
	quota_give_bytes(&u->server->quota, u->uid, QUOTA_UPLOAD, u->size);
	free(u);
}

static void upload_releasep(struct upload **u)
{
	upload_release(*u);
}

int upload_new(struct upload **out, int *fd, struct server *server, uid_t uid, const char *name,
	       uint64_t size, struct err *err)
{
	if (size == 0)
		return err_set(err, NPU_E_BAD_VALUE, "%s: an upload of no bytes: say how many the file has",
			       name);
	struct upload *room = calloc(1, sizeof *room);
	if (!room)
		return err_set(err, NPU_E_NO_MEMORY, "%s: no memory for an upload", name);
	int r = quota_take_bytes(&server->quota, uid, QUOTA_UPLOAD, size, server->config.user_upload, err);
	if (r) {
		free(room);
		return r;
	}
	*room = (struct upload){.server = server, .uid = uid, .size = size, .refs = 1};
	server->upload_missing += size;
	server->upload_bytes += size;
	cleanup(upload_releasep) struct upload *u = room;
	r = check_room(server, name, size, err);
	if (r)
		return r;
	cleanup(closep) int memory = memfd_create("npud-upload", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memory < 0 || ftruncate(memory, (off_t)size) < 0)
		return err_sys(err, errno, "%s: no memory for an upload of %" PRIu64 " bytes", name, size);
	*fd = take_fd(&memory);
	*out = take(&u);
	return 0;
}

int upload_put(struct upload *u, int fd, const char *name, uint64_t at, const void *bytes, size_t size,
	       struct err *err)
{
	if (u->ended)
		return err_set(err, NPU_E_BAD_VALUE, "%s: its upload has ended; begin another", name);
	if (at != u->got)
		return err_set(err, NPU_E_BAD_VALUE,
			       "%s: bytes from %" PRIu64 " on were sent; %" PRIu64
			       " have come: send what follows",
			       name, at, u->got);
	if (size > u->size - u->got) {
		err_set(err, NPU_E_TOO_LARGE,
			"%s: %zu more bytes; %" PRIu64 " of %" PRIu64
			" have come: begin an upload of the size it has",
			name, size, u->got, u->size);
		err->detail.needed = u->got + size;
		err->detail.limit = u->size;
		return err->code;
	}
	for (size_t done = 0; done < size;) {
		ssize_t n = pwrite(fd, (const char *)bytes + done, size - done, (off_t)(at + done));
		if (n < 0 && errno != EINTR)
			return err_sys(err, errno, "%s: the upload cannot be kept", name);
		done += n > 0 ? (size_t)n : 0;
	}
	u->got += size;
	u->server->upload_missing -= size;
	return 0;
}

int upload_end(struct upload *u, int fd, const char *name, struct err *err)
{
	if (u->ended)
		return 0;
	if (u->got < u->size) {
		err_set(err, NPU_E_BAD_COUNT,
			"%s: %" PRIu64 " of %" PRIu64 " bytes have come: send the rest first", name, u->got,
			u->size);
		err->detail.needed = u->size;
		err->detail.limit = u->got;
		return err->code;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return err_sys(err, errno, "%s: the upload cannot be sealed", name);
	u->ended = true;
	return 0;
}

uint64_t upload_size(const struct upload *u)
{
	return u->size;
}

uint64_t upload_got(const struct upload *u)
{
	return u->got;
}

bool upload_ended(const struct upload *u)
{
	return u->ended;
}
