#pragma once
// The x86 intrinsics. Under BANKML_SIMDE they are SIMDe's (portable code under the same names), so that the AVX-512
// kernels can be tested on a machine without it.
#ifdef BANKML_SIMDE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
#else
#include <immintrin.h>
#endif
