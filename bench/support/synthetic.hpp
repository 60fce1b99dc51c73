#pragma once
// Models of random weights: any shape and type, nothing to download.
#include <filesystem>
#include <string>
#include <string_view>

#include "bankml/base/numeric.hpp"
#include "base/file_descriptor.hpp"

namespace bankml::bench {

struct Shape {
  int dim = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, hidden = 0, vocab = 0;
};

struct Synthetic {
  std::string name;  // as given
  std::string architecture = "llama";
  Shape shape;
  DType type = DType::q4_1;
};

// "llama:135m:q4_1": architecture, size and type of the matrices. Sizes: 135m, 1b, 3b, 8b, or
// DIMxLAYERSxHEADSxKV_HEADSxHIDDENxVOCAB. Throws Error(invalid_request) naming what is possible.
Synthetic parse_synthetic(std::string_view text);

// A GGUF file without a name in the temporary folder: it is gone with this object, however the program ends. The token
// embedding is of the same type as the rest and serves as output too; the vocabulary is a list of made-up words.
class SyntheticFile {
 public:
  // Throws Error(io).
  explicit SyntheticFile(const Synthetic& model);
  std::filesystem::path path() const;  // of this process alone

 private:
  FileDescriptor file_;
};

}  // namespace bankml::bench
