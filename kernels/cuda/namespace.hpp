#pragma once
// The namespace of the launchers: kernels for the GPU here, for the host in tests/hostdev/namespace.hpp.
#define KERNEL_NAMESPACE bankml::cuda
