/*
 * The metrics over HTTP, for those who scrape: GET /metrics at 127.0.0.1, and nothing else. libmicrohttpd
 * speaks HTTP, on the loop: it has no thread of its own, and what it is asked meets no lock. Loop thread
 * only.
 */
#ifndef NPUD_EXPORTER_H
#define NPUD_EXPORTER_H

#include <stdint.h>
#include <uv.h>

struct server;
struct MHD_Daemon;

struct exporter {
	struct MHD_Daemon *http; /* NULL: nobody is served */
	uv_poll_t poll;
	uv_timer_t timer; /* connections that time out */
};

/* Serves at the port, unless it is 0. That it cannot be had is logged, and everything else goes on. */
void exporter_open(struct exporter *e, struct server *server, uint16_t port);
void exporter_close(struct exporter *e);

#endif
