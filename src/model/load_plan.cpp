#include "model/load_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "bankml/base/error.hpp"

namespace bankml {
namespace {

// Dimensions beyond those expected must be 1.
bool has_shape(const GgufTensor& tensor, LoadPlan::Shape shape) {
  for (std::size_t i = 0; i < std::max(tensor.dims.size(), shape.size()); ++i) {
    const std::int64_t expected = i < shape.size() ? shape.begin()[i] : 1;
    const std::int64_t found = i < tensor.dims.size() ? tensor.dims[i] : 1;
    if (expected != found) return false;
  }
  return true;
}

// The elements that norms, biases and rope factors are made of: F32, in old files F16.
std::vector<float> widen(const GgufTensor& tensor, std::int64_t first, std::int64_t n) {
  std::vector<float> out(static_cast<std::size_t>(n));
  dequantize_row(tensor.type, tensor.data.data() + row_bytes(tensor.type, first), n, out.data());
  return out;
}

}  // namespace

const GgufTensor* LoadPlan::find(const std::string& name, Shape shape) {
  const GgufTensor* const tensor = file_.find_tensor(name);
  if (tensor == nullptr) return nullptr;
  if (!has_shape(*tensor, shape)) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("{}: tensor '{}': expected shape [{}], found [{}]", file_.name(), name,
                            fmt::join(shape, ", "), fmt::join(tensor->dims, ", ")));
  }
  used_.insert(tensor);
  return tensor;
}

const GgufTensor& LoadPlan::require(const std::string& name, Shape shape) {
  const GgufTensor* const tensor = find(name, shape);
  if (tensor == nullptr) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("{}: tensor '{}' of shape [{}] is missing", file_.name(), name, fmt::join(shape, ", ")));
  }
  return *tensor;
}

bool LoadPlan::has_rows(const std::string& name, std::int64_t rows) const {
  const GgufTensor* const tensor = file_.find_tensor(name);
  return tensor != nullptr && tensor->rows() == rows;
}

void LoadPlan::matrix_rows(std::unique_ptr<Weight>& to, const GgufTensor& tensor, std::int64_t first,
                           std::int64_t rows) {
  const std::size_t stride = row_bytes(tensor.type, tensor.row_length());
  matrices_.push_back(
      {&to, &tensor, 1, rows,
       tensor.data.subspan(static_cast<std::size_t>(first) * stride, static_cast<std::size_t>(rows) * stride), 0});
}

void LoadPlan::expert_rows(std::unique_ptr<Weight>& to, const GgufTensor& tensor, std::int64_t first,
                           std::int64_t rows) {
  const std::size_t row = row_bytes(tensor.type, tensor.row_length());
  const auto experts = static_cast<int>(tensor.dims.size() > 2 ? tensor.dims[2] : 1);
  matrices_.push_back({&to, &tensor, experts, rows, tensor.data.subspan(static_cast<std::size_t>(first) * row),
                       static_cast<std::size_t>(tensor.dims[1]) * row});
}

void LoadPlan::check_float(const GgufTensor& tensor) const {
  if (tensor.type != DType::f32 && tensor.type != DType::f16 && tensor.type != DType::bf16) {
    throw Error(ErrorKind::unsupported, fmt::format("{}: tensor '{}': expected type F32, found {}", file_.name(),
                                                    tensor.name, dtype_info(tensor.type).name));
  }
}

void LoadPlan::vector_part(Buffer& to, const GgufTensor& tensor, std::int64_t first, std::int64_t n) {
  check_float(tensor);
  vectors_.push_back({&to, &tensor, first, n});
}

void LoadPlan::optional_vectors(Buffer& to, const std::string& name, Shape shape) {
  if (const GgufTensor* const tensor = find(name, shape)) vector(to, *tensor);
}

std::vector<float> LoadPlan::host_vector(const GgufTensor& tensor) const {
  check_float(tensor);
  return widen(tensor, 0, tensor.row_length());
}

std::vector<std::string_view> LoadPlan::unused() const {
  std::vector<std::string_view> names;
  for (const GgufTensor& tensor : file_.tensors()) {
    if (!used_.contains(&tensor)) names.push_back(tensor.name);
  }
  return names;
}

void LoadPlan::load(Device& device, const std::function<void(double)>& progress) const {
  const auto stream = device.make_stream();
  for (const VectorPart& part : vectors_) {
    const std::vector<float> values = widen(*part.tensor, part.first, part.n);
    const auto bytes = std::as_bytes(std::span(values));
    *part.to = device.allocate(bytes.size());
    stream->copy_to_device(part.to->data(), bytes.data(), bytes.size());
    stream->synchronize();  // the host copy dies here
  }
  std::size_t total = 0, done = 0;
  for (const MatrixPart& part : matrices_) total += part.data.size();
  for (const MatrixPart& part : matrices_) {
    const DType type = part.tensor->type;
    const std::int64_t cols = part.tensor->row_length();
    *part.to = part.experts == 1
                   ? device.load_weight(type, part.rows, cols, part.data.data())
                   : device.load_experts(type, part.experts, part.rows, cols, part.data.data(), part.stride);
    if (!(*part.to)->uses_source()) file_.discard(part.data);
    done += part.data.size();
    if (progress) progress(static_cast<double>(done) / static_cast<double>(total));
  }
}

}  // namespace bankml
