/* The operations that send a model's file piece by piece. */
#include "request.h"
#include "upload.h"

/* Larger ones would take longer a byte, since they leave the processor's cache, and hold up who comes next.
 */
#define PART (512u << 10)

int on_upload_begin(struct request *r, const struct req_upload_begin *q, struct rep_upload_begin *a,
		    struct err *err)
{
	a->part = PART;
	return session_add_upload(r->session, q->name.data, q->name.size, q->of, q->bytes, &a->file, err);
}

/* The file of that number, if it is being, or was, uploaded. */
static int find(struct file **out, struct session *s, uint64_t number, struct err *err)
{
	struct file *f;
	int result = session_find_file(&f, s, number, err);
	if (result)
		return result;
	if (!f->upload)
		return err_set(err, NPU_E_BAD_VALUE,
			       "%s: was passed as a descriptor: there is nothing to upload", f->name);
	*out = f;
	return 0;
}

int on_upload_put(struct request *r, const struct req_upload_put *q, struct rep_upload_put *a,
		  struct err *err)
{
	struct file *f = NULL;
	int result = find(&f, r->session, q->file, err);
	if (result == 0) /* here, on the loop: of PART bytes a fraction of a millisecond */
		result = upload_put(f->upload, f->fd, f->name, q->at, q->data.data, q->data.size, err);
	if (result == 0)
		a->bytes = upload_got(f->upload);
	return result;
}

int on_upload_end(struct request *r, const struct req_upload_end *q, struct rep_upload_end *a,
		  struct err *err)
{
	struct file *f = NULL;
	int result = find(&f, r->session, q->file, err);

	(void)a;
	return result ? result : upload_end(f->upload, f->fd, f->name, err);
}
