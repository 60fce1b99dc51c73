#pragma once
#include "device/cpu/kernels.hpp"

namespace bankml {

// Whether the kernels give the portable kernels' bits for a small mat-mul of every type: a few milliseconds. For
// instruction sets that the developers' machines may lack.
bool passes_self_check(const Kernels& kernels);

}  // namespace bankml
