// gpu_check: checks of the CUDA backend on a device, and its speed. bench/gpu_check builds and runs it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <string>

#include "bankml/base/error.hpp"
#include "bankml/device/cuda.hpp"
#include "gpu/checks.hpp"
#include "gpu/device/cuda_probes.hpp"
#include "gpu/wrappers.hpp"
#include "kernels/host_device.hpp"
#include "tensor_peak/products.hpp"

namespace bankml::gpu {
namespace {

constexpr int kNoDevice = 69;  // EX_UNAVAILABLE of sysexits.h

constexpr const char* kUsage =
    R"(gpu_check [--host-device] [--quick] [--parts 1,2,3,5] [--models FOLDER] [--seconds N] [-o FILE.json]

  --host-device   checks the host device, which stands for a GPU on the CPU; everything small
  --quick         a few small shapes
  --parts         1 wrappers of instructions, 2 kernels, 3 tiny models, 5 speed        (all)
  --models        folder of the tiny models                                            (models)
  --seconds       part 5 begins no model that would take it beyond them                (240)
Status 0: all well, 1: a check failed, 2: wrong options, 69: no GPU.
)";

struct Options {
  bool host_device = false, quick = false, help = false;
  std::string parts = "1,2,3,5", models = "models", output;
  double seconds = 240;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 < argc) return argv[++i];
      throw Error(ErrorKind::invalid_request, flag + ": expected a value");
    };
    if (flag == "--host-device") {
      options.host_device = true;
    } else if (flag == "--quick") {
      options.quick = true;
    } else if (flag == "--parts") {
      options.parts = value();
    } else if (flag == "--models") {
      options.models = value();
    } else if (flag == "--seconds") {
      options.seconds = std::atof(value().c_str());
    } else if (flag == "-o") {
      options.output = value();
    } else if (flag == "-h" || flag == "--help") {
      options.help = true;
    } else {
      throw Error(ErrorKind::invalid_request, "unknown option " + flag);
    }
  }
  return options;
}

void run_host_probe(int index, Stream& stream, std::uint32_t* out, const std::uint32_t* in) {
  int count = 0;
  host::probes(count)[index].run(stream, out, in);
}

int run(const Options& options) {
  std::unique_ptr<Device> device;
  if (options.host_device) {
    // Another order of threads than that of the device that it is compared with.
    device = std::make_unique<host::HostDevice>(host::HostOptions{.order = host::Order::random(1), .cublas = true});
  } else {
    const CudaDevices found = find_cuda_devices();
    if (found.devices.empty()) {
      fmt::print(stderr, "gpu_check: no GPU to check: {}\n", found.reason);
      return kNoDevice;
    }
    device = make_cuda_device(found.devices.front().index);
  }
  const Subject subject = options.host_device
                              ? Subject{*device, true, run_host_probe, host::tensor_products}
                              : Subject{*device, options.quick, run_cuda_probe, bench::cuda_tensor_products};
  Report report(device->description());
  const auto wanted = [&](char part) { return options.parts.find(part) != std::string::npos; };
  if (wanted('1')) check_wrappers(report, subject);
  if (wanted('2')) check_kernels(report, subject);
  if (wanted('3')) check_models(report, subject, options.models);
  if (wanted('5')) measure_speed(report, subject, options.seconds);
  fmt::print("{}", report.table());
  if (!options.output.empty()) std::ofstream(options.output) << report.json() << "\n";
  return report.failures() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace bankml::gpu

int main(int argc, char** argv) {
  try {
    const auto options = bankml::gpu::parse(argc, argv);
    if (options.help) {
      fmt::print("{}", bankml::gpu::kUsage);
      return 0;
    }
    return bankml::gpu::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_check: {}\n{}", error.what(), bankml::gpu::kUsage);
    return 2;
  }
}
