#pragma once
// How fast a GPU's tensor cores multiply: the limit that prefill is held against.
#include <cstdint>

#include "bankml/device/device.hpp"

namespace bankml::bench {

// Operands: int8 added up into int32, or halves into floats. With mma.sync, which every kernel here uses.
enum class TensorType { int8, f16 };

inline constexpr int kBlockThreads = 256;
inline constexpr int kTensorChains = 8;  // independent products of a warp, so that their latency is hidden

// Multiply-adds of that many blocks.
double macs_of(TensorType type, int blocks, int iterations);

// Queues products on a stream of the device; see products.hpp.
using TensorProducts = void (*)(Stream& stream, TensorType type, std::uint32_t* out, int blocks, int iterations);
// On a CUDA device. Throws Error(device) in a build without the CUDA backend.
void cuda_tensor_products(Stream& stream, TensorType type, std::uint32_t* out, int blocks, int iterations);

// Multiply-adds a second: the best of a few runs. `small`: hardly any, to see that it works.
double measure_tensor_peak(Device& device, TensorProducts products, TensorType type, bool small = false);

}  // namespace bankml::bench
