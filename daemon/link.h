/* Circular doubly linked lists of embedded links; a list is a link that is nobody's member. */
#ifndef NPUD_LINK_H
#define NPUD_LINK_H

#include <stdbool.h>
#include <stddef.h>

struct link {
	struct link *prev, *next;
};

static inline void link_init(struct link *l)
{
	l->prev = l->next = l;
}

static inline bool link_empty(const struct link *list)
{
	return list->next == list;
}

static inline void link_append(struct link *list, struct link *l)
{
	l->prev = list->prev;
	l->next = list;
	list->prev->next = l;
	list->prev = l;
}

/* Taking out what is in no list (link_init) does nothing. */
static inline void link_remove(struct link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	link_init(l);
}

static inline unsigned link_count(const struct link *list)
{
	unsigned n = 0;
	for (const struct link *at = list->next; at != list; at = at->next)
		n++;
	return n;
}

#define link_of(l, type, member) ((type *)((char *)(l)-offsetof(type, member)))

/* `at` may be removed, and freed, inside the loop; nothing else of the list may. */
#define link_each(at, list)                                                       \
	for (struct link *at = (list)->next, *next_##at = at->next; at != (list); \
	     at = next_##at, next_##at = at->next)

#endif
