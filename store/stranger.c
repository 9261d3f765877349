#include "stranger.h"
#include <string.h>

#define BEGINS(bytes) bytes, sizeof bytes - 1

static const struct {
	const char *bytes;
	size_t size;
	const char *what;
} strangers[] = {
	{BEGINS("PK\3\4"), "a ZIP archive, as PyTorch's checkpoints are: save the model as safetensors"},
	{BEGINS("\x80\2"),
	 "a Python pickle, as PyTorch's older checkpoints are: save the model as safetensors"},
	{BEGINS("\x89HDF"), "an HDF5 file, as Keras writes it: save the model as safetensors"},
	{BEGINS("\x93NUMPY"), "a numpy array: save the model as safetensors"},
	{BEGINS("lmgg"), "of llama.cpp's formats before GGUF: convert the original model to GGUF"},
	{BEGINS("fmgg"), "of llama.cpp's formats before GGUF: convert the original model to GGUF"},
	{BEGINS("tjgg"), "of llama.cpp's formats before GGUF: convert the original model to GGUF"},
	{BEGINS("24ka"), "a llama2.c file of version 1 or 2: export it as version 0"},
	{BEGINS("version https://git-lfs"),
	 "a pointer of Git LFS, not the file: fetch that by 'git lfs pull'"},
	{BEGINS("<!"), "a web page: fetch the model's file again"},
	{BEGINS("<html"), "a web page: fetch the model's file again"},
	{BEGINS("\x1f\x8b"), "compressed by gzip: unpack it first"},
	{BEGINS("\x28\xb5\x2f\xfd"), "compressed by zstd: unpack it first"},
	{BEGINS("Q4HI"), "a packed image: 'npu-head check' and 'npuctl store import' read it"},
	{BEGINS("{"), "JSON, without weights: name the file that has them, or the directory"},
};

const char *stranger_what(const void *first, size_t size)
{
	for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++)
		if (size >= strangers[i].size && memcmp(first, strangers[i].bytes, strangers[i].size) == 0)
			return strangers[i].what;
	return NULL;
}
