#include "device/cuda/graph.hpp"

#include <cuda_runtime_api.h>

#include "device/cuda/runtime/status.hpp"
#include "device/cuda/runtime/stream.hpp"

namespace bankml::cuda {
namespace {

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraph_t graph) {
    const cudaError_t code = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check(code, "cudaGraphInstantiate");
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override { cudaGraphExecDestroy(executable_); }
  void launch(Stream& stream) override {
    check(cudaGraphLaunch(executable_, cuda_stream(stream).native()), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

void begin_capture(Stream& stream) {
  // Thread-local: calls of other threads that a capture forbids don't spoil this one.
  check(cudaStreamBeginCapture(cuda_stream(stream).native(), cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
}

std::unique_ptr<Graph> end_capture(Stream& stream) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(cuda_stream(stream).native(), &graph), "cudaStreamEndCapture");
  return std::make_unique<CudaGraph>(graph);
}

void set_deferred(Stream& stream, Deferred* deferred) {
  cuda_stream(stream).set_deferred(deferred);
}

}  // namespace bankml::cuda
