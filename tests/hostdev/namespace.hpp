#pragma once
// The namespace of the launchers: kernels for the host here, for the GPU in kernels/cuda/namespace.hpp.
#define KERNEL_NAMESPACE bankml::host
