#pragma once
// Every wrapper that kernels use, run by one warp over given words: for a GPU and, from the same source, for the host
// device.
#include <cstdint>

#include "namespace.hpp"

namespace bankml {

class Stream;

inline constexpr int kProbeWords = 16;  // that a lane reads and writes
inline constexpr int kProbeTotal = 32 * kProbeWords;

}  // namespace bankml

namespace KERNEL_NAMESPACE {

struct Probe {
  const char* name;
  void (*run)(Stream& stream, std::uint32_t* out, const std::uint32_t* in);  // device memory, kProbeTotal words each
  double tolerance;  // of each output as a float, relative; 0: bit for bit
};

// `count`: how many there are.
const Probe* probes(int& count);

}  // namespace KERNEL_NAMESPACE
