#pragma once
// The wrappers of wrappers.hpp in the CUDA backend's build; where there is none, they throw.
#include <cstdint>

namespace bankml {
class Stream;
}

namespace bankml::gpu {

void run_cuda_probe(int index, Stream& stream, std::uint32_t* out, const std::uint32_t* in);

}  // namespace bankml::gpu
