#include "standard.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

bool standard_begin(void)
{
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	for (int fd = 0; fd <= 2; fd++) {
		if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
			continue;
		/* The wrong direction on purpose: using the closed descriptor must still fail. */
		if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
			return false;
	}
	return true;
}

/* `npuctl metrics | head`: what is missing was not wanted. */
static bool reader_has_gone(void)
{
	struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
	return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

int standard_flush(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	int error = errno ? errno : EIO; /* of the flush, or of what failed before it, as a rule just now */
	return reader_has_gone() ? EPIPE : error;
}
