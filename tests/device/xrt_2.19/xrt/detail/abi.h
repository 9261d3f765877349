#pragma once
#define XRT_VERSION(major, minor) (((major) << 16) + (minor))
#define XRT_VERSION_CODE XRT_VERSION(2, 19)
