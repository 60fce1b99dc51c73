#pragma once
// Products on tensor cores that read no memory: for a GPU and, from the same source, for the host device.
#include <cstdint>

#include "namespace.hpp"
#include "tensor_peak/tensor_peak.hpp"

namespace KERNEL_NAMESPACE {

// `blocks` of kBlockThreads threads multiply tiles, bench::macs_of() multiply-adds in all. `out`: device memory, a word
// for each thread.
void tensor_products(Stream& stream, bench::TensorType type, std::uint32_t* out, int blocks, int iterations);

}  // namespace KERNEL_NAMESPACE
