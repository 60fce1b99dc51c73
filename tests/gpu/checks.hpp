#pragma once
// The parts of gpu_check that run in its own process. Each tells the report what it finds; none throws for a wrong
// answer.
#include <filesystem>

#include "bankml/device/device.hpp"
#include "gpu/report.hpp"
#include "tensor_peak/tensor_peak.hpp"

namespace bankml::gpu {

// What is checked, and how much of it.
struct Subject {
  Device& device;  // a GPU, or the host device that stands for one
  bool small;      // a few shapes only
  // Of this device's build: its wrappers (part 1), its products on tensor cores (part 5).
  void (*run_probe)(int index, Stream& stream, std::uint32_t* out, const std::uint32_t* in);
  bench::TensorProducts tensor_products;
};

void check_wrappers(Report& report, const Subject& subject);                                     // part 1
void check_kernels(Report& report, const Subject& subject);                                      // part 2
void check_models(Report& report, const Subject& subject, const std::filesystem::path& folder);  // part 3
void measure_speed(Report& report, const Subject& subject, double seconds);                      // part 5

}  // namespace bankml::gpu
