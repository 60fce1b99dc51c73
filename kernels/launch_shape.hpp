#pragma once
// What both builds of a kernel share: the shape of a launch and the registers of the tensor-core instructions.
#include <cstddef>
#include <cstdint>
#include <source_location>

namespace bankml {

class Stream;

// 64 bits wide, so that a size that doesn't fit the device is refused and not wrapped.
struct LaunchExtent {
  std::int64_t x = 1, y = 1, z = 1;
  constexpr LaunchExtent(std::int64_t x_, std::int64_t y_ = 1, std::int64_t z_ = 1) noexcept : x(x_), y(y_), z(z_) {}
  constexpr std::int64_t count() const noexcept { return x * y * z; }
};

// `shared`: bytes of dynamic shared memory. `at` is the line of the launcher, for reports.
struct LaunchShape {
  LaunchExtent grid = 1;
  LaunchExtent block = 1;
  std::size_t shared = 0;
  std::source_location at = std::source_location::current();
};

// Limits of every device of compute capability 8.0 and later (CUDA C++ Programming Guide, "Compute Capabilities").
inline constexpr std::int64_t kMaxBlockThreads = 1024;
inline constexpr std::int64_t kMaxBlockZ = 64;
inline constexpr std::int64_t kMaxGridX = 2147483647;
inline constexpr std::int64_t kMaxGridYZ = 65535;
inline constexpr std::size_t kDefaultSharedBytes = 48 * 1024;  // a block's, unless allow_shared() granted more
inline constexpr std::size_t kMaxSharedBytes = 227 * 1024;  // compute capability 9.0; 8.0 has 163 KiB, 8.6 and 8.9 99

// Registers of one lane (PTX ISA, "Matrix Fragments for mma.m16n8k16 / .m16n8k32"). With g = lane / 4 and t = lane % 4:
//   A, 16 rows: registers 0 and 2 are of row g, 1 and 3 of row g + 8; registers 2 and 3 are of the second half of k.
//   B, 8 columns: all of column g; register 1 is of the second half of k.
//   C, 16 x 8: values 0 and 1 are of row g, 2 and 3 of row g + 8; columns 2 t and 2 t + 1.
// int8: a register has the four k from 4 t (second half: + 16). 16-bit floats: the two k from 2 t (second half: + 8).
struct MmaA {
  std::uint32_t x[4];
};
struct MmaB {
  std::uint32_t x[2];
};
struct MmaInt {
  std::int32_t x[4];
};
struct MmaFloat {
  float x[4];
};

// Four 8 x 8 matrices of 16-bit elements as ldmatrix gives them: register i is of matrix i.
struct Matrices4 {
  std::uint32_t x[4];
};
struct Matrices2 {
  std::uint32_t x[2];
};

}  // namespace bankml
