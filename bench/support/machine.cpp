#include "support/machine.hpp"

#include <fmt/format.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "device/cpu/thread_pool.hpp"
#include "tensor_peak/tensor_peak.hpp"

namespace bankml::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Beyond the caches; less of it each where there are many threads, whose shares of the caches are small.
constexpr std::size_t kMostBytesPerThread = std::size_t{128} << 20, kLeastBytesPerThread = std::size_t{32} << 20;
constexpr std::size_t kBytesOfAll = std::size_t{4} << 30;
constexpr int kRepeats = 5;

using Words = std::uint64_t __attribute__((vector_size(32)));

std::uint64_t read_all(const std::byte* data, std::size_t bytes) {
  constexpr int kChains = 8;
  Words sum[kChains] = {};
  const auto* words = reinterpret_cast<const Words*>(data);
  for (std::size_t i = 0; i + kChains <= bytes / sizeof(Words); i += kChains) {
    for (int c = 0; c < kChains; ++c) sum[c] ^= words[i + static_cast<std::size_t>(c)];
  }
  for (int c = 1; c < kChains; ++c) sum[0] ^= sum[c];
  return sum[0][0] ^ sum[0][1] ^ sum[0][2] ^ sum[0][3];
}

// Best of several runs of work(thread) on all threads at once, in seconds.
template <class F>
double best_seconds(ThreadPool& pool, F&& work) {
  double best = 1e30;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = Clock::now();
    pool.run([&](int thread, int) { work(thread); });
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

constexpr int kRounds = 2'000'000;  // a few milliseconds
constexpr int kChains = 12;         // enough to hide the latency of each other

// Each returns multiply-adds; the result is kept so that the loop is.
double f32_portable(volatile float* sink) {
  using Floats = float __attribute__((vector_size(16)));
  Floats acc[kChains] = {}, x = {1.0f, 1.0f, 1.0f, 1.0f};
  asm volatile("" : "+m"(x));
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) a = a * x + x;
  }
  for (const auto& a : acc) *sink = *sink + a[0];
  return 4.0 * kChains * kRounds;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) double f32_avx2(volatile float* sink) {
  __m256 acc[kChains] = {};
  __m256 x = _mm256_set1_ps(1.0f);
  asm volatile("" : "+m"(x));
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) a = _mm256_fmadd_ps(a, x, x);
  }
  for (const auto& a : acc) *sink = *sink + _mm256_cvtss_f32(a);
  return 8.0 * kChains * kRounds;
}
__attribute__((target("avx2,fma"))) double int8_avx2(volatile float* sink) {
  __m256i acc[kChains] = {};
  __m256i x = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
  asm volatile("" : "+m"(x));
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc)
      a = _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_xor_si256(x, a), x), ones));
  }
  for (const auto& a : acc) *sink = *sink + static_cast<float>(_mm256_extract_epi32(a, 0));
  return 32.0 * kChains * kRounds;
}
__attribute__((target("avx512f"))) double f32_avx512(volatile float* sink) {
  __m512 acc[kChains] = {};
  __m512 x = _mm512_set1_ps(1.0f);
  asm volatile("" : "+m"(x));
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) a = _mm512_fmadd_ps(a, x, x);
  }
  for (const auto& a : acc) *sink = *sink + _mm512_cvtss_f32(a);
  return 16.0 * kChains * kRounds;
}
__attribute__((target("avx512f,avx512vnni"))) double int8_avx512(volatile float* sink) {
  __m512i acc[kChains] = {};
  __m512i x = _mm512_set1_epi32(0x01010101);
  asm volatile("" : "+m"(x));
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) a = _mm512_dpbusd_epi32(a, x, x);
  }
  for (const auto& a : acc) *sink = *sink + static_cast<float>(_mm512_cvtsi512_si32(a));
  return 64.0 * kChains * kRounds;
}
#endif

double peak(ThreadPool& pool, double (*work)(volatile float*)) {
  std::vector<double> done(static_cast<std::size_t>(pool.size()));
  const double seconds = best_seconds(pool, [&](int thread) {
    volatile float sink = 0;
    done[static_cast<std::size_t>(thread)] = work(&sink);
  });
  double all = 0;
  for (const double one : done) all += one;
  return all / seconds * 1e-9;
}

}  // namespace

MachineLimits measure_limits(int threads, Isa isa) {
  ThreadPool pool(threads);
  MachineLimits limits;
  const auto parts = static_cast<std::size_t>(threads);
  const std::size_t part_bytes = std::clamp(kBytesOfAll / parts, kLeastBytesPerThread, kMostBytesPerThread);
  std::vector<std::byte> from(part_bytes * parts), to(from.size());
  const auto part = [&](int thread) { return static_cast<std::size_t>(thread) * part_bytes; };
  std::memset(from.data(), 1, from.size());
  const double gigabytes = static_cast<double>(from.size()) * 1e-9;
  std::vector<std::uint64_t> sums(parts);
  limits.read_gb = gigabytes / best_seconds(pool, [&](int thread) {
                     sums[static_cast<std::size_t>(thread)] += read_all(from.data() + part(thread), part_bytes);
                   });
  limits.copy_gb = gigabytes / best_seconds(pool, [&](int thread) {
                     std::memcpy(to.data() + part(thread), from.data() + part(thread), part_bytes);
                   });
  limits.f32_gmac = peak(pool, f32_portable);
#if defined(__x86_64__)
  if (isa == Isa::avx2) limits.f32_gmac = peak(pool, f32_avx2);
  if (isa == Isa::avx2) limits.int8_gmac = peak(pool, int8_avx2);
  if (isa == Isa::avx512) limits.f32_gmac = peak(pool, f32_avx512);
  if (isa == Isa::avx512) limits.int8_gmac = peak(pool, int8_avx512);
#else
  static_cast<void>(isa);
#endif
  return limits;
}

MachineLimits measure_limits(Device& device) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  const Buffer from = device.allocate(kBytes), to = device.allocate(kBytes);
  const std::unique_ptr<Stream> stream = device.make_stream();
  double best = 1e30;
  for (int i = 0; i <= kRepeats; ++i) {  // the first one doesn't count
    const auto start = Clock::now();
    stream->copy_on_device(to.data(), from.data(), kBytes);
    stream->synchronize();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (i > 0) best = std::min(best, seconds);
  }
  MachineLimits limits;
  limits.copy_gb = static_cast<double>(kBytes) / best * 1e-9;
  limits.read_gb = 2 * limits.copy_gb;
  limits.int8_gmac = measure_tensor_peak(device, cuda_tensor_products, TensorType::int8) * 1e-9;
  limits.f16_gmac = measure_tensor_peak(device, cuda_tensor_products, TensorType::f16) * 1e-9;
  return limits;
}

std::string machine_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string name = "unknown processor";
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) {
      name = line.substr(line.find(':') + 2);
      break;
    }
  }
  return fmt::format("{}, {} cores", name, std::thread::hardware_concurrency());
}

}  // namespace bankml::bench
