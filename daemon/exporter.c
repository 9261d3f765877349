#include "exporter.h"
#include "server.h"
#include "log.h"
#include <arpa/inet.h>
#include <microhttpd.h>
#include <string.h>

/* At once, and how long one may say nothing: short, for libmicrohttpd finds out by this alone about a peer
 * that said half of something and went. */
#define CONNECTIONS 64u
#define PATIENCE_S 2u

/* Takes the response. */
static enum MHD_Result send_response(struct MHD_Connection *c, unsigned status, struct MHD_Response *response)
{
	enum MHD_Result r = response ? MHD_queue_response(c, status, response) : MHD_NO;
	if (response)
		MHD_destroy_response(response);
	return r;
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned status, const char *sentence)
{
	struct MHD_Response *r =
		MHD_create_response_from_buffer(strlen(sentence), (void *)sentence, MHD_RESPMEM_PERSISTENT);
	if (r && status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	return send_response(c, status, r);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url, const char *method,
				  const char *version, const char *body, size_t *body_size, void **state)
{
	static char seen;
	size_t size;

	(void)version, (void)body;
	/* It calls for the headers first, and may be answered only when the body, if any, has passed. */
	if (!*state || *body_size) {
		*state = &seen;
		*body_size = 0;
		return MHD_YES;
	}
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "npud: only GET and HEAD are served\n");
	if (strcmp(url, "/metrics") != 0)
		return refuse(c, MHD_HTTP_NOT_FOUND, "npud: there is /metrics and nothing else\n");
	char *text = metrics_text(arg, &size);
	if (!text)
		return refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, "npud: no memory for the metrics\n");
	struct MHD_Response *r = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
	if (!r)
		free(text);
	else
		MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE,
					"application/openmetrics-text; version=1.0.0; charset=utf-8");
	return send_response(c, MHD_HTTP_OK, r);
}

static void on_timer(uv_timer_t *timer);

static unsigned connections(const struct exporter *e)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(e->http, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
	return info ? info->num_connections : 0;
}

static void run(struct exporter *e)
{
	MHD_UNSIGNED_LONG_LONG ms;
	unsigned before;

	/* At the limit it stops to listen, and begins again at the next run after a connection has ended. */
	do {
		before = connections(e);
		MHD_run(e->http);
	} while (connections(e) < before);
	if (MHD_get_timeout(e->http, &ms) == MHD_YES)
		uv_timer_start(&e->timer, on_timer, ms, 0);
	else
		uv_timer_stop(&e->timer);
}

static void on_timer(uv_timer_t *timer)
{
	run(timer->data);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	(void)status, (void)events;
	run(poll->data);
}

void exporter_open(struct exporter *e, struct server *server, uint16_t port)
{
	const struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	*e = (struct exporter){0};
	if (!port)
		return;
	errno = 0;
	e->http =
		MHD_start_daemon(MHD_USE_EPOLL, port, NULL, NULL, on_request, server, MHD_OPTION_SOCK_ADDR,
				 &at, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
				 PATIENCE_S, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_END);
	const union MHD_DaemonInfo *info =
		e->http ? MHD_get_daemon_info(e->http, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
	if (!info || uv_poll_init(&server->loop, &e->poll, info->epoll_fd)) {
		log_line("npud", 0, "no metrics over HTTP: port %u of 127.0.0.1 cannot be had: %s", port,
			 strerror(errno));
		if (e->http)
			MHD_stop_daemon(e->http);
		e->http = NULL;
		return;
	}
	uv_timer_init(&server->loop, &e->timer);
	e->poll.data = e->timer.data = e;
	uv_poll_start(&e->poll, UV_READABLE, on_readable);
	log_line("npud", 0, "metrics at http://127.0.0.1:%u/metrics", port);
}

void exporter_close(struct exporter *e)
{
	if (!e->http)
		return;
	uv_close((uv_handle_t *)&e->poll, NULL);
	uv_close((uv_handle_t *)&e->timer, NULL);
	MHD_stop_daemon(e->http);
	e->http = NULL;
}
