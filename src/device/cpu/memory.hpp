#pragma once
#include <cstddef>

#include "bankml/device/device.hpp"

namespace bankml {

// Memory aligned to 64 bytes, contents undefined; large pieces are mapped on their own and may use huge pages. Throws
// Error(out_of_memory) naming the size.
Buffer allocate_memory(std::size_t bytes);

}  // namespace bankml
