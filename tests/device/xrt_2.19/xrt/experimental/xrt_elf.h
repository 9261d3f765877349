#pragma once
#include <string>

namespace xrt
{
class elf
{
      public:
	explicit elf(const std::string &filename);
};
} // namespace xrt
