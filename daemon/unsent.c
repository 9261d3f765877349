#include "unsent.h"
#include <stdatomic.h>
#include <sys/socket.h>

#define SMALL (UINT64_C(1) << 20)
enum { SOCKETS = 65536 };

/* By descriptor; NNG writes to each from one thread at a time. */
static struct {
	_Atomic uint64_t bytes;
	_Atomic uid_t uid;
} left[SOCKETS];
static _Atomic int end; /* none from here on ever had any */

void unsent_note(int fd, uint64_t bytes)
{
	struct ucred peer;
	socklen_t size = sizeof peer;

	if (fd < 0 || fd >= SOCKETS)
		return;
	if (bytes < SMALL)
		bytes = 0;
	if (atomic_load(&left[fd].bytes) == 0) {
		if (bytes == 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
			return;
		atomic_store(&left[fd].uid, peer.uid);
	}
	atomic_store(&left[fd].bytes, bytes);
	for (int known = atomic_load(&end); known <= fd;)
		if (atomic_compare_exchange_weak(&end, &known, fd + 1))
			break;
}

uint64_t unsent_to(uid_t uid)
{
	uint64_t sum = 0;

	for (int fd = 0, all = atomic_load(&end); fd < all; fd++)
		if (atomic_load(&left[fd].bytes) && atomic_load(&left[fd].uid) == uid)
			sum += atomic_load(&left[fd].bytes);
	return sum;
}
