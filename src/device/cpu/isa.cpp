#include "device/cpu/isa.hpp"

#include <cstdlib>
#include <string>

#include "bankml/base/error.hpp"

namespace bankml {

std::string_view isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::portable:
      return "portable";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "";
}

bool isa_available(Isa isa) noexcept {
  if (isa == Isa::portable) return true;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (isa == Isa::avx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

Isa chosen_isa() {
  Isa best = Isa::portable;
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    if (isa_available(isa)) best = isa;
  }
  const char* limit = std::getenv("BANKML_ISA");
  if (!limit || !*limit) return best;
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (isa_name(isa) == limit) return isa < best ? isa : best;
  }
  throw Error(ErrorKind::invalid_request,
              "BANKML_ISA: expected portable, avx2 or avx512, got '" + std::string(limit) + "'");
}

}  // namespace bankml
