#pragma once
// Which tensor of a file goes where: declared for the whole graph and checked on the way, so that nothing is loaded
// from a file that can't run.
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "bankml/device/device.hpp"
#include "bankml/model/gguf.hpp"

namespace bankml {

// Declaring throws Error(invalid_request) for a tensor that is missing or has another shape, Error(unsupported) for a
// vector that isn't of a float type, naming the tensor. Destinations must stay where they are until load() has
// returned.
class LoadPlan {
 public:
  using Shape = std::initializer_list<std::int64_t>;  // as in the file: length of a row first

  explicit LoadPlan(const GgufFile& file) : file_(file) {}

  // The tensor, which the graph uses from now on; find() gives nullptr for one that is absent.
  const GgufTensor* find(const std::string& name, Shape shape);
  const GgufTensor& require(const std::string& name, Shape shape);
  const GgufFile& file() const noexcept { return file_; }
  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }  // uses and checks nothing
  bool has_rows(const std::string& name, std::int64_t rows) const;                        // uses and checks nothing

  void matrix(std::unique_ptr<Weight>& to, const GgufTensor& tensor) { matrix_rows(to, tensor, 0, tensor.rows()); }
  void matrix_rows(std::unique_ptr<Weight>& to, const GgufTensor& tensor, std::int64_t first, std::int64_t rows);
  // Of a tensor of three dimensions, one matrix for each expert: its rows [first, first + rows).
  void expert_rows(std::unique_ptr<Weight>& to, const GgufTensor& tensor, std::int64_t first, std::int64_t rows);
  // Elements [first, first + n) as f32 on the device.
  void vector(Buffer& to, const GgufTensor& tensor) { vector_part(to, tensor, 0, tensor.row_length() * tensor.rows()); }
  void vector_part(Buffer& to, const GgufTensor& tensor, std::int64_t first, std::int64_t n);
  void optional_vector(Buffer& to, const std::string& name, std::int64_t n) { optional_vectors(to, name, {n}); }
  void optional_vectors(Buffer& to, const std::string& name, Shape shape);
  // All elements as f32 in host memory, at once.
  std::vector<float> host_vector(const GgufTensor& tensor) const;

  // Names of tensors of the file that nothing was declared for.
  std::vector<std::string_view> unused() const;
  // `progress` gets fractions of the bytes loaded, the last one 1.
  void load(Device& device, const std::function<void(double)>& progress) const;

 private:
  struct MatrixPart {
    std::unique_ptr<Weight>* to;
    const GgufTensor* tensor;
    int experts;  // 1: a plain matrix
    std::int64_t rows;
    std::span<const std::byte> data;
    std::size_t stride;  // bytes from one expert to the next
  };
  struct VectorPart {
    Buffer* to;
    const GgufTensor* tensor;
    std::int64_t first, n;
  };
  void check_float(const GgufTensor& tensor) const;

  const GgufFile& file_;
  std::unordered_set<const GgufTensor*> used_;
  std::vector<MatrixPart> matrices_;
  std::vector<VectorPart> vectors_;
};

}  // namespace bankml
