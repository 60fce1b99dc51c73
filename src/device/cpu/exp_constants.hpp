#pragma once
// Constants of the two exponentials of docs/arithmetic.md: the vector one (2.10) and libm's expf (6).
#include <cstdint>

namespace bankml {

inline constexpr std::int32_t kMagicBits = 0x4b400000;  // of 0x1.8p23f: an integer n added to it stands in the low bits
inline constexpr std::int32_t kPowerBias = static_cast<std::int32_t>((127u + 64u) << 23);  // of 2^64 in a float's bits

inline constexpr double kExpScale = 32 * 0x1.71547652b82fep+0;  // 32 / ln 2
inline constexpr double kExpShift = 0x1.8p52;
inline constexpr double kExpC0 = 0x1.c6af84b912394p-5 / 32 / 32 / 32;
inline constexpr double kExpC1 = 0x1.ebfce50fac4f3p-3 / 32 / 32;
inline constexpr double kExpC2 = 0x1.62e42ff0c52d6p-1 / 32;

// Bits of 2^(i/32) as a double, less i << 47: with k << 47 added they are those of 2^(k/32) for any k = i mod 32.
alignas(64) inline constexpr std::uint64_t kExpTable[32] = {
    0x3ff0000000000000, 0x3fefd9b0d3158574, 0x3fefb5586cf9890f, 0x3fef9301d0125b51, 0x3fef72b83c7d517b,
    0x3fef54873168b9aa, 0x3fef387a6e756238, 0x3fef1e9df51fdee1, 0x3fef06fe0a31b715, 0x3feef1a7373aa9cb,
    0x3feedea64c123422, 0x3feece086061892d, 0x3feebfdad5362a27, 0x3feeb42b569d4f82, 0x3feeab07dd485429,
    0x3feea47eb03a5585, 0x3feea09e667f3bcd, 0x3fee9f75e8ec5f74, 0x3feea11473eb0187, 0x3feea589994cce13,
    0x3feeace5422aa0db, 0x3feeb737b0cdc5e5, 0x3feec49182a3f090, 0x3feed503b23e255d, 0x3feee89f995ad3ad,
    0x3feeff76f2fb5e47, 0x3fef199bdd85529c, 0x3fef3720dcef9069, 0x3fef5818dcfba487, 0x3fef7c97337b9b5f,
    0x3fefa4afa2a490da, 0x3fefd0765b6e4540,
};

}  // namespace bankml
