#include <cctype>
#include <string>
#include <string_view>

#include "options/flag.hpp"
#include "options/values.hpp"

namespace bankml {
namespace {

using Text = const std::string&;

[[noreturn]] void refuse_device(Text value) {
  bad_value("cpu, cuda or cuda:N", value);
}

// llama-server's names for the same are taken too: none, CUDA0.
void set_device(Options& options, Text value) {
  DeviceChoice& choice = options.device;
  std::string name;
  for (const char c : value) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (name == "cpu" || name == "none") {
    choice = {.kind = DeviceChoice::Kind::cpu};
    return;
  }
  constexpr std::string_view kCuda = "cuda";
  if (!name.starts_with(kCuda)) refuse_device(value);
  std::string_view index = std::string_view(name).substr(kCuda.size());
  choice = {.kind = DeviceChoice::Kind::cuda};
  if (index.empty()) return;
  if (index.front() == ':') index.remove_prefix(1);
  if (index.empty() || index.find_first_not_of("0123456789") != std::string_view::npos) refuse_device(value);
  choice.index = to_int(std::string(index), 0);
}

void set_gpu_layers(Options& options, Text value) {
  options.gpu_layers_zero = value != "auto" && value != "all" && to_int(value) == 0;
}

}  // namespace

FlagSection device_flags() {
  return {
      "Device",
      {
          {.names = {"-dev", "--device"},
           .value = "cpu|cuda|cuda:N",
           .env = "LLAMA_ARG_DEVICE",
           .help = "where the model runs; unset: the first CUDA device that can be used, else the CPU",
           .set = set_device},
          {.names = {"-ngl", "--gpu-layers", "--n-gpu-layers"},
           .value = "N|auto|all",
           .env = "LLAMA_ARG_N_GPU_LAYERS",
           .help = "0: the model runs on the CPU; anything else: all of it on one device",
           .set = set_gpu_layers},
          {.names = {"--list-devices"}, .help = "list the CUDA devices and exit"},
      },
  };
}

}  // namespace bankml
