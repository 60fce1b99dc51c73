#pragma once
// What the machine itself can do, measured in the same run as the figures that are held against it.
#include <string>

#include "bankml/device/device.hpp"
#include "device/cpu/isa.hpp"

namespace bankml::bench {

// Of `threads` threads together.
struct MachineLimits {
  double read_gb = 0;    // GB/s, reading memory that no cache holds
  double copy_gb = 0;    // GB/s copied (each byte is read and written)
  double int8_gmac = 0;  // 1e9 products of int8 pairs, added up into int32, a second
  double f32_gmac = 0;   // 1e9 fused multiply-adds of f32 a second
  double f16_gmac = 0;   // of halves into f32 on tensor cores; 0: there are none
};

MachineLimits measure_limits(int threads, Isa isa);

// What a CUDA device can do: copies within its memory (read_gb counts both directions), products on its tensor cores.
MachineLimits measure_limits(Device& device);

// "AMD EPYC, 2 cores": from the kernel, for the head of a report.
std::string machine_name();

}  // namespace bankml::bench
