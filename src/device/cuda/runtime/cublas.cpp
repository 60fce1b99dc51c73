#include "device/cuda/runtime/cublas.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <library_types.h>

#include <memory>
#include <type_traits>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"
#include "device/cuda/library_matmul.hpp"
#include "device/cuda/runtime/status.hpp"
#include "device/cuda/runtime/stream.hpp"

namespace bankml::cuda {
namespace {

constexpr const char* kLibrary = "libcublas.so.13";
// What cuBLAS recommends for compute capability 9.0.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

// The library stays open: its threads and the driver know its code.
bool open(Cublas& table) {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    log_info("cuBLAS isn't used: {}", dlerror());
    return false;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) log_warning("cuBLAS isn't used: {} has no {}", kLibrary, name);
    return function != nullptr;
  };
  return find(table.create, "cublasCreate_v2") && find(table.destroy, "cublasDestroy_v2") &&
         find(table.set_stream, "cublasSetStream_v2") && find(table.set_workspace, "cublasSetWorkspace_v2") &&
         find(table.gemm, "cublasGemmEx") && find(table.status_text, "cublasGetStatusString");
}

void check_cublas(const Cublas& cublas, CublasStatus status, const char* call) {
  if (status == kCublasSuccess) return;
  throw Error(ErrorKind::device, fmt::format("{}: {}", call, cublas.status_text(status)));
}

// The library's state for one stream. Memory of its own, so that it allocates nothing during a capture.
class Context {
 public:
  Context(const Cublas& cublas, CudaStream& stream) : Context(cublas) {
    const cudaStream_t native = stream.native();
    check(cudaMalloc(&workspace_, kWorkspaceBytes), "cudaMalloc for cuBLAS");
    check_cublas(cublas_, cublas_.set_stream(handle_, native), "cublasSetStream");
    check_cublas(cublas_, cublas_.set_workspace(handle_, workspace_, kWorkspaceBytes), "cublasSetWorkspace");
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {
    cublas_.destroy(handle_);
    cudaFree(workspace_);
  }
  CublasHandle handle() const noexcept { return handle_; }

 private:
  // A constructor of its own: what the other one fails at leaves an object, which gives the handle back.
  explicit Context(const Cublas& cublas) : cublas_(cublas) {
    check_cublas(cublas_, cublas_.create(&handle_), "cublasCreate");
  }

  const Cublas& cublas_;
  CublasHandle handle_ = nullptr;
  void* workspace_ = nullptr;
};

cudaDataType_t data_type(DType type) {
  switch (type) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      throw Error(ErrorKind::internal, "library_matmul takes f32, f16 and bf16 weights");
  }
}

}  // namespace

const Cublas* find_cublas() {
  static Cublas table;
  static const bool found = open(table);
  return found ? &table : nullptr;
}

bool library_matmul(Stream& stream, DType type, float* out, const void* w, const void* a, int rows,
                    std::int64_t outputs, std::int64_t k, ProductUse use) {
  const Cublas* const cublas = find_cublas();
  if (!cublas) return false;
  CudaStream& cuda = cuda_stream(stream);
  std::shared_ptr<void>& state = cuda.cublas_state();
  if (!state) state = std::make_shared<Context>(*cublas, cuda);
  const auto& context = *static_cast<const Context*>(state.get());
  const cudaDataType_t in = data_type(type);
  const float old_part = use.add ? 1.0f : 0.0f;
  // The library counts columns first: its product is ours, read transposed.
  const auto m = static_cast<int>(outputs), depth = static_cast<int>(k);
  check_cublas(*cublas,
               cublas->gemm(context.handle(), kOpTranspose, kOpNone, m, rows, depth, &use.scale, w, in, depth, a, in,
                            depth, &old_part, out, CUDA_R_32F, m, kComputeF32, kGemmDefault),
               "cublasGemmEx");
  return true;
}

}  // namespace bankml::cuda
