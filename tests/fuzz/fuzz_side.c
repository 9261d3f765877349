/*
 * Property: whatever packet comes to the side socket, with however many descriptors, one answer of the
 * protocol comes back, and every descriptor is closed again when its session has ended.
 */
#include "descriptors.h"
#include "indoors.h"
#include "proto.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { DESCRIPTORS = 12 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static unsigned open_descriptors(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");
	if (!d)
		abort();
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int reach(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	snprintf(to.sun_path, sizeof to.sun_path, "%.100s.fd", indoors()->listener.path);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to))
		abort();
	return fd;
}

static void send_with(int to, const void *bytes, size_t size, unsigned count)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
	} control = {0};
	int fds[DESCRIPTORS];
	struct iovec part = {(void *)bytes, size};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};

	for (unsigned i = 0; i < count; i++)
		fds[i] = open(i & 1 ? "/dev/null" : "/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (count) {
		m.msg_control = control.room;
		m.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(h), fds, count * sizeof(int));
	}
	if (sendmsg(to, &m, MSG_NOSIGNAL) < 0)
		abort();
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
}

static void must_answer(int fd)
{
	char answer[8192];
	struct proto_in in;
	struct err err;
	ssize_t n;
	/* It comes from another thread of the daemon; one that never comes is a time out of the fuzzer's. */
	while ((n = recv(fd, answer, sizeof answer, MSG_DONTWAIT)) < 0 && errno == EAGAIN)
		indoors_turn();
	if (n <= 0 || proto_read_reply(&in, answer, (size_t)n, &err))
		abort();
	if (in.code && (proto_read_error(&in, &err), !err.text[0]))
		abort();
	proto_end(&in);
}

/* The first byte: how many descriptors, and whether the token in the packet is made the session's. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	if (size < 2 || size > 8000)
		return 0;
	indoors();
	unsigned before = open_descriptors();
	struct session *s = indoors_session(false);
	s->ready = false;
	uint8_t *packet = malloc(size - 1);
	if (!packet)
		abort();
	memcpy(packet, bytes + 1, size - 1);
	uint8_t *token = memmem(packet, size - 1, "TOKENTOKENTOKEN!", 16);
	if (token)
		memcpy(token, s->token, 16);
	int fd = reach();
	indoors_turn(); /* accepts */
	send_with(fd, packet, size - 1, bytes[0] % (DESCRIPTORS + 1));
	must_answer(fd);
	close(fd);
	while (quota_used(&indoors()->quota, s->peer.uid, QUOTA_SIDE))
		indoors_turn();
	indoors_close(s);
	while (open_descriptors() != before)
		indoors_turn();
	free(packet);
	return 0;
}
