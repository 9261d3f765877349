#pragma once
#include <string>

namespace xrt
{
class uuid
{
};
class xclbin
{
      public:
	explicit xclbin(const std::string &filename);
};
class device
{
      public:
	device() = default;
	explicit device(unsigned int index);
	explicit device(const std::string &bdf);
	uuid register_xclbin(const xclbin &image);
};
} // namespace xrt
