/*
 * Descriptors that come along the main socket, where none is asked for. Whoever lets go of one last may wait
 * long for it (undertaker.h). Reading the bytes it came with lets go of it, and so does closing the
 * connection unread; NNG does both on threads that serve everybody. So the two calls it makes are found here
 * first, as sendmsg is in sendmsg.c: readv says that a connection with a descriptor next in its queue is
 * broken, and shutdown gives one with something unread to the undertaker.
 */
#include "undertaker.h"
#include "unsent.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PARTS_MAX 8

__attribute__((visibility("default"))) ssize_t readv(int fd, const struct iovec *parts, int count)
{
	struct iovec looked[PARTS_MAX];
	struct msghdr m = {.msg_iov = looked, .msg_iovlen = (size_t)(count < PARTS_MAX ? count : PARTS_MAX)};

	memcpy(looked, parts, m.msg_iovlen * sizeof *parts);
	ssize_t n = syscall(SYS_recvmsg, fd, &m, MSG_PEEK);
	if (n < 0 && errno == ENOTSOCK)
		return syscall(SYS_readv, fd, parts, count);
	if (n <= 0)
		return n;
	if (m.msg_flags & MSG_CTRUNC) {
		errno = ECONNRESET;
		return -1;
	}
	/* No more than was looked at: a descriptor may have come behind it meanwhile. */
	size_t left = (size_t)n;
	for (size_t i = 0; i < m.msg_iovlen; i++) {
		if (looked[i].iov_len > left)
			looked[i].iov_len = left;
		left -= looked[i].iov_len;
	}
	return syscall(SYS_recvmsg, fd, &m, 0);
}

__attribute__((visibility("default"))) int shutdown(int fd, int how)
{
	int unread, r = (int)syscall(SYS_shutdown, fd, how), error = errno;

	/* A copy: NNG closes its own, behind which nothing is left to let go of, or ours still is. */
	if (how == SHUT_RDWR && ioctl(fd, FIONREAD, &unread) == 0 && unread > 0)
		undertaker_take(fcntl(fd, F_DUPFD_CLOEXEC, 3));
	unsent_note(fd, 0);
	errno = error;
	return r;
}
