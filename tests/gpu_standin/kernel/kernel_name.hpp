#pragma once

#include <string>

namespace standin {

// What a kernel is called in the source, or its address where the program does not know.
std::string kernel_name(const void* kernel);

}  // namespace standin
