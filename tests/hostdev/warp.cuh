#pragma once
// Operations among the lanes of a warp, for g++: the twin of kernels/cuda/warp.cuh and of CUDA's shuffles and votes.
// Each is one meeting of the lanes in its mask.
#include "device.cuh"

namespace bankml::host {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// What the lanes of a meeting brought and get.
template <class In>
struct LanesIn {
  const Meeting& meeting;
  bool has(int lane) const { return lane >= 0 && lane < kWarp && (meeting.mask >> lane & 1); }
  const In& operator[](int lane) const { return *static_cast<const In*>(meeting.in[lane]); }
};
template <class Out>
struct LanesOut {
  const Meeting& meeting;
  Out& operator[](int lane) const { return *static_cast<Out*>(meeting.out[lane]); }
};

// A collective instruction: `combine` maps the lanes' inputs to their outputs and captures nothing.
template <class Out, class In, class Combine>
Out meet(const char* operation, std::uint32_t mask, const In& in, Site at, Combine) {
  static_assert(std::is_empty_v<Combine>);
  Out out{};
  meet(
      operation, mask, &in, &out,
      [](const Meeting& meeting) { Combine{}(LanesIn<In>{meeting}, LanesOut<Out>{meeting}); }, false, at);
  return out;
}

template <class F>
void each_lane(std::uint32_t mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(std::countr_zero(mask));
}

template <class T>
struct ShuffleIn {
  T value;
  int source;  // a lane; -1: its own
};
// A lane outside the mask can't be read.
template <class T>
T shuffle(const char* operation, std::uint32_t mask, T value, int source, Site at) {
  static_assert(std::is_arithmetic_v<T>);
  if (source >= 0 && !(mask >> source & 1)) report_mistake("shuffle from a lane outside the mask", at);
  return meet<T>(operation, mask, ShuffleIn<T>{value, source}, at,
                 [](const LanesIn<ShuffleIn<T>>& in, const LanesOut<T>& out) {
                   each_lane(in.meeting.mask,
                             [&](int lane) { out[lane] = in[in[lane].source < 0 ? lane : in[lane].source].value; });
                 });
}

inline int lane_of_warp() {
  return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % kWarp);
}

// `width`: the warp is divided into groups of so many lanes, a power of two; sources stay within the group.
template <class T>
T __shfl_sync(std::uint32_t mask, T value, int source, int width = kWarp, Site at = Site::current()) {
  return shuffle("__shfl_sync", mask, value, (lane_of_warp() & ~(width - 1)) | (source & (width - 1)), at);
}
template <class T>
T __shfl_up_sync(std::uint32_t mask, T value, unsigned distance, int width = kWarp, Site at = Site::current()) {
  const int lane = lane_of_warp(), source = lane - static_cast<int>(distance);
  return shuffle("__shfl_up_sync", mask, value, source < (lane & ~(width - 1)) ? -1 : source, at);
}
template <class T>
T __shfl_down_sync(std::uint32_t mask, T value, unsigned distance, int width = kWarp, Site at = Site::current()) {
  const int lane = lane_of_warp(), source = lane + static_cast<int>(distance);
  return shuffle("__shfl_down_sync", mask, value, source > (lane | (width - 1)) ? -1 : source, at);
}
template <class T>
T __shfl_xor_sync(std::uint32_t mask, T value, int lane_mask, int width = kWarp, Site at = Site::current()) {
  const int lane = lane_of_warp(), source = lane ^ lane_mask;
  return shuffle("__shfl_xor_sync", mask, value, source > (lane | (width - 1)) ? -1 : source, at);
}

inline unsigned __ballot_sync(std::uint32_t mask, int predicate, Site at = Site::current()) {
  return meet<unsigned>(
      "__ballot_sync", mask, predicate, at, [](const LanesIn<int>& in, const LanesOut<unsigned>& out) {
        unsigned votes = 0;
        each_lane(in.meeting.mask, [&](int lane) { votes |= static_cast<unsigned>(in[lane] != 0) << lane; });
        each_lane(in.meeting.mask, [&](int lane) { out[lane] = votes; });
      });
}
inline int __any_sync(std::uint32_t mask, int predicate, Site at = Site::current()) {
  return __ballot_sync(mask, predicate, at) != 0;
}
inline int __all_sync(std::uint32_t mask, int predicate, Site at = Site::current()) {
  return __ballot_sync(mask, predicate, at) == mask;
}

// All steps of a butterfly at one meeting.
template <int kWidth, class T, class Combine>
T butterfly(const char* operation, T value, Site at, Combine) {
  static_assert(kWidth >= 1 && kWidth <= kWarp && (kWidth & (kWidth - 1)) == 0);
  return meet<T>(operation, kAllLanes, value, at, [](const LanesIn<T>& in, const LanesOut<T>& out) {
    T now[kWarp], next[kWarp];
    for (int lane = 0; lane < kWarp; ++lane) now[lane] = in[lane];
    for (int distance = kWidth / 2; distance > 0; distance /= 2) {
      for (int lane = 0; lane < kWarp; ++lane) next[lane] = Combine{}(now[lane], now[lane ^ distance]);
      for (int lane = 0; lane < kWarp; ++lane) now[lane] = next[lane];
    }
    for (int lane = 0; lane < kWarp; ++lane) out[lane] = now[lane];
  });
}
template <int kWidth = 32, class T>
T warp_sum(T value, Site at = Site::current()) {
  return butterfly<kWidth>("warp_sum", value, at, [](T a, T b) { return a + b; });
}
template <int kWidth = 32>
float warp_max(float value, Site at = Site::current()) {
  return butterfly<kWidth>("warp_max", value, at, [](float a, float b) { return std::fmax(a, b); });
}

}  // namespace bankml::host
