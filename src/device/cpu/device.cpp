#include "bankml/device/device.hpp"

#include <cstring>
#include <thread>

#include <sched.h>

#include "bankml/base/log.hpp"
#include "device/cpu/activation.hpp"
#include "device/cpu/expert_choice.hpp"
#include "device/cpu/memory.hpp"
#include "device/cpu/ops.hpp"
#include "device/cpu/self_check.hpp"
#include "device/cpu/weight.hpp"

namespace bankml {
namespace {

// Work of every stream is done when its call returns, so the order asked for always holds.
class CpuEvent final : public Event {
 public:
  bool ready() const override { return true; }
  void wait() const override {}
};

class CpuStream final : public Stream {
 public:
  void copy_to_device(void* device, const void* host, std::size_t bytes) override { std::memcpy(device, host, bytes); }
  void copy_to_host(void* host, const void* device, std::size_t bytes) override { std::memcpy(host, device, bytes); }
  void copy_on_device(void* to, const void* from, std::size_t bytes) override { std::memmove(to, from, bytes); }
  void record(Event&) override {}
  void wait(const Event&) override {}
  void synchronize() override {}
};

// Cores that this process may run on.
int usable_cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

// The chosen instruction set; AVX-512, which few of the machines that this is developed on have, only if it gives the
// right bits.
Isa checked_isa() {
  const Isa isa = chosen_isa();
  if (isa != Isa::avx512 || passes_self_check(kernels(isa))) return isa;
  log_warning("the AVX-512 kernels give other results than the portable ones on this machine: using AVX2");
  return Isa::avx2;
}

class CpuDevice final : public Device {
 public:
  CpuDevice(int threads, Isa isa) : isa_(isa), pool_(threads), ops_(pool_, isa) {}

  std::string description() const override {
    return "CPU, " + std::to_string(pool_.size()) + (pool_.size() == 1 ? " thread, " : " threads, ") +
           std::string(isa_name(isa_)) + " kernels";
  }
  bool shares_host_memory() const noexcept override { return true; }
  Buffer allocate(std::size_t bytes) override { return allocate_memory(bytes); }
  Buffer allocate_host(std::size_t bytes) override { return allocate_memory(bytes); }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CpuStream>(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }
  std::unique_ptr<Weight> load_weight(DType type, std::int64_t rows, std::int64_t cols,
                                      const std::byte* data) override {
    return load_experts(type, 1, rows, cols, data, 0);
  }
  std::unique_ptr<Weight> load_experts(DType type, int experts, std::int64_t rows, std::int64_t cols,
                                       const std::byte* data, std::size_t stride) override {
    return std::make_unique<CpuWeight>(pool_, weights_, type, experts, rows, cols, data, stride);
  }
  std::unique_ptr<Activation> make_activation(std::int64_t max_rows, std::int64_t dim, ActFormats formats) override {
    return std::make_unique<CpuActivation>(max_rows, dim, formats, kernels(isa_));
  }
  std::unique_ptr<ExpertChoice> make_expert_choice(int max_rows, int experts, int used) override {
    return std::make_unique<CpuExpertChoice>(max_rows, experts, used);
  }
  Ops& ops() noexcept override { return ops_; }

 private:
  Isa isa_;
  MemoryArena weights_;
  ThreadPool pool_;
  CpuOps ops_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads) {
  return std::make_unique<CpuDevice>(threads < 1 ? usable_cores() : threads, checked_isa());
}

}  // namespace bankml
