#pragma once
// Which of the compiled instruction sets the kernels use. All give the same bits.
#include <string_view>

namespace bankml {

enum class Isa { portable, avx2, avx512 };

std::string_view isa_name(Isa isa) noexcept;  // as in BANKML_ISA

// Whether this processor and system can run it. avx2 means AVX2, FMA and F16C; avx512 means F, BW, VL, DQ and VNNI
// besides.
bool isa_available(Isa isa) noexcept;

// The best available one, no better than BANKML_ISA says. Throws Error(invalid_request) if that names no instruction
// set.
Isa chosen_isa();

}  // namespace bankml
