#pragma once
// What the launchers choose between, each beside its kernels in the .cu of its name.
#include "device.cuh"
#include "device/cuda/launchers.hpp"

namespace KERNEL_NAMESPACE {

void matmul_vec(Stream& stream, const MatmulPart* parts, int n, const ActivationPlanes& a, int rows);
void matmul_tiles(Stream& stream, const MatmulPart* parts, int n, const ActivationPlanes& a, int rows);
void matmul_expert_vec(Stream& stream, const MatmulPart& part, const ActivationPlanes& a, const ExpertPairs& pairs);
void matmul_expert_tiles(Stream& stream, const MatmulPart& part, const ActivationPlanes& a, const ExpertPairs& pairs);
void matmul_float(Stream& stream, const MatmulPart* parts, int n, const ActivationPlanes& a, int rows);
// out = out with bias, scale and residual, where the residual is other memory.
void finish_outputs(Stream& stream, const MatmulPart& part, int rows);
void attention_split(Stream& stream, const AttentionLaunch& args, const KvView& kv);
bool attention_tiled(Stream& stream, const AttentionLaunch& args,
                     const KvView& kv);  // false: no kernel for these heads

}  // namespace KERNEL_NAMESPACE
