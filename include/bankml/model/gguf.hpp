#pragma once
// A GGUF model file (version 2 or 3), mapped read-only and checked whole before anything of it is used.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bankml/base/numeric.hpp"

namespace bankml {

struct GgufTensor {
  std::string name;
  DType type;
  std::vector<std::int64_t> dims;   // 1 to 4, the first is the length of a row
  std::span<const std::byte> data;  // in the mapping
  std::int64_t row_length() const noexcept { return dims[0]; }
  std::int64_t rows() const noexcept;  // product of the other dims
};

// Immutable after open(); the mapping lives as long as the object. A file that is truncated by somebody else afterwards
// raises SIGBUS, as with any mapping.
class GgufFile {
 public:
  // Throws Error(invalid_request) with one line that names the file, what was expected and what came, for a damaged,
  // truncated or hostile file; Error(unsupported) for other versions and for tensor types that bankmld does not compute
  // with; Error(not_found) or Error(io) if it can't be read. Time and memory are bounded by the size of the file,
  // whatever it says.
  static GgufFile open(const std::filesystem::path& path);
  // The same checks on bytes in memory, which must outlive the object (tests and fuzzing) and start at a multiple
  // of 32.
  static GgufFile parse(std::span<const std::byte> bytes, std::string_view name);
  ~GgufFile();
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;

  bool has(std::string_view key) const;
  // Typed reads: nullopt if the key is absent; throws Error(invalid_request) naming key, expected and stored type if it
  // has another one. Integers of another width are taken when they fit. A float must be finite; elements of floats()
  // may be anything.
  std::optional<std::uint64_t> unsigned_value(std::string_view key) const;
  std::optional<std::int64_t> signed_value(std::string_view key) const;
  std::optional<float> float_value(std::string_view key) const;
  std::optional<bool> bool_value(std::string_view key) const;
  std::optional<std::string_view> string_value(std::string_view key) const;
  std::optional<std::vector<std::string>> strings(std::string_view key) const;
  std::optional<std::vector<float>> floats(std::string_view key) const;           // also from an array of integers
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const;  // also from an array of bool
  std::optional<std::uint64_t> array_size(std::string_view key) const;  // nullopt also for a value that is no array

  std::span<const GgufTensor> tensors() const noexcept;  // in file order
  const GgufTensor* find_tensor(std::string_view name) const noexcept;

  std::size_t bytes() const noexcept;        // size of the file
  const std::string& name() const noexcept;  // path, for messages
  // Tells the kernel that these mapped bytes won't be needed again: they no longer count as resident.
  void discard(std::span<const std::byte> bytes) const noexcept;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bankml
