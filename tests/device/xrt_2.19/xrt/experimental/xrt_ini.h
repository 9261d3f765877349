#pragma once
#include <string>

namespace xrt
{
namespace ini
{
void set(const std::string &key, const std::string &value);
}
} // namespace xrt
