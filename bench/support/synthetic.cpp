#include "support/synthetic.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "bankml/base/error.hpp"
#include "base/blocks.hpp"

namespace bankml::bench {
namespace {

constexpr std::pair<const char*, Shape> kSizes[] = {
    {"135m", {576, 30, 9, 3, 64, 1536, 49152}},
    {"1b", {2048, 16, 32, 8, 64, 8192, 128256}},
    {"3b", {3072, 28, 24, 8, 128, 8192, 128256}},
    {"8b", {4096, 32, 32, 8, 128, 14336, 128256}},
};
constexpr DType kTypes[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0,   DType::q4_1,
                            DType::q5_0, DType::q5_1, DType::q8_0, DType::q2_k,   DType::q3_k,
                            DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_nl, DType::iq4_xs};
constexpr std::size_t kAlignment = 32;

// "Q4_1" and "q4_1" alike.
std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return out;
}

DType parse_type(const std::string& text) {
  std::string known;
  for (const DType type : kTypes) {
    const std::string name = lower(dtype_info(type).name);
    if (name == text) return type;
    known += (known.empty() ? "" : ", ") + name;
  }
  throw Error(ErrorKind::invalid_request,
              fmt::format("--synthetic: expected one of the types {}, got '{}'", known, text));
}

Shape parse_shape(const std::string& text) {
  for (const auto& [name, shape] : kSizes) {
    if (text == name) return shape;
  }
  Shape s;
  int used = 0;
  const int n = std::sscanf(text.c_str(), "%dx%dx%dx%dx%dx%d%n", &s.dim, &s.layers, &s.heads, &s.kv_heads, &s.hidden,
                            &s.vocab, &used);
  if (n != 6 || used != static_cast<int>(text.size()) || s.dim < 1 || s.layers < 1 || s.heads < 1 || s.kv_heads < 1 ||
      s.hidden < 1 || s.vocab < 2 || s.dim % s.heads != 0 || s.heads % s.kv_heads != 0 || s.dim % kBlock != 0 ||
      s.hidden % kBlock != 0) {
    throw Error(
        ErrorKind::invalid_request,
        fmt::format("--synthetic: expected a size of 135m, 1b, 3b, 8b or DIMxLAYERSxHEADSxKV_HEADSxHIDDENxVOCAB "
                    "with heads that divide and widths that are multiples of 32, got '{}'",
                    text));
  }
  s.head_dim = s.dim / s.heads;
  return s;
}

// Bytes of weights: random codes, scales that keep the numbers of a deep model in range.
std::vector<std::byte> random_blocks(DType type, std::int64_t elements) {
  std::mt19937_64 random(1);
  std::vector<std::byte> bytes(row_bytes(type, elements));
  std::normal_distribution<float> normal(0.0f, 0.02f);
  if (dtype_info(type).block_len == 1) {
    for (std::int64_t i = 0; i < elements; ++i) {
      const float x = normal(random);
      if (type == DType::f32) reinterpret_cast<float*>(bytes.data())[i] = x;
      if (type == DType::f16) reinterpret_cast<half*>(bytes.data())[i] = to_half(x);
      if (type == DType::bf16) reinterpret_cast<bfloat16*>(bytes.data())[i] = to_bfloat16(x);
    }
    return bytes;
  }
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  with_block(type, [&]<class Block>() {
    auto* blocks = reinterpret_cast<Block*>(bytes.data());
    for (std::size_t i = 0; i < bytes.size() / sizeof(Block); ++i) {
      set_scale(blocks[i].d, normal(random) * 0.01f);
      if constexpr (requires { blocks[i].m; }) blocks[i].m = to_half(normal(random) * 0.1f);
      if constexpr (requires { blocks[i].dmin; }) blocks[i].dmin = to_half(normal(random) * 0.01f);
    }
  });
  return bytes;
}

struct Tensor {
  std::string name;
  std::int64_t cols, rows;  // rows 0: a vector of ones
  DType type;
  std::size_t bytes() const {
    return row_bytes(type, cols) * static_cast<std::size_t>(std::max<std::int64_t>(rows, 1));
  }
};

std::vector<Tensor> tensors_of(const Synthetic& model) {
  const Shape& s = model.shape;
  const std::int64_t q = std::int64_t{s.heads} * s.head_dim, kv = std::int64_t{s.kv_heads} * s.head_dim;
  std::vector<Tensor> out;
  const auto matrix = [&](std::string name, std::int64_t cols, std::int64_t rows) {
    // Rows that a type's blocks don't fill are kept in Q8_0, as quantising tools do.
    const bool fits = cols % dtype_info(model.type).block_len == 0;
    out.push_back({std::move(name), cols, rows, fits ? model.type : DType::q8_0});
  };
  const auto ones = [&](std::string name) { out.push_back({std::move(name), s.dim, 0, DType::f32}); };
  matrix("token_embd.weight", s.dim, s.vocab);
  ones("output_norm.weight");
  for (int i = 0; i < s.layers; ++i) {
    const std::string layer = fmt::format("blk.{}.", i);
    ones(layer + "attn_norm.weight");
    matrix(layer + "attn_q.weight", s.dim, q);
    matrix(layer + "attn_k.weight", s.dim, kv);
    matrix(layer + "attn_v.weight", s.dim, kv);
    matrix(layer + "attn_output.weight", q, s.dim);
    ones(layer + "ffn_norm.weight");
    matrix(layer + "ffn_gate.weight", s.dim, s.hidden);
    matrix(layer + "ffn_up.weight", s.dim, s.hidden);
    matrix(layer + "ffn_down.weight", s.hidden, s.dim);
  }
  return out;
}

// The format is in docs/gguf.md.
class Writer {
 public:
  explicit Writer(const std::filesystem::path& path) : out_(path, std::ios::binary) {}

  template <class T>
  void number(T value) {
    bytes(&value, sizeof value);
  }
  void string(std::string_view text) {
    number<std::uint64_t>(text.size());
    bytes(text.data(), text.size());
  }
  void key(std::string_view name, std::int32_t type) {
    string(name);
    number(type);
  }
  void bytes(const void* data, std::size_t size) {
    out_.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
    written_ += size;
  }
  void pad() {
    constexpr char kZeros[kAlignment] = {};
    bytes(kZeros, (kAlignment - written_ % kAlignment) % kAlignment);
  }
  void finish() {
    if (!out_.flush()) throw Error(ErrorKind::io, "the model can't be written to the temporary folder (is it full?)");
  }

 private:
  std::ofstream out_;
  std::size_t written_ = 0;
};

constexpr std::int32_t kU32 = 4, kF32 = 6, kString = 8, kArray = 9, kI32 = 5;

void write_keys(Writer& out, const Synthetic& model) {
  const Shape& s = model.shape;
  const auto text = [&](const std::string& name, const std::string& value) {
    out.key(name, kString);
    out.string(value);
  };
  const auto integer = [&](const std::string& name, int value) {
    out.key(name, kU32);
    out.number(static_cast<std::uint32_t>(value));
  };
  const std::string prefix = model.architecture + ".";
  text("general.architecture", model.architecture);
  text("general.name", model.name);
  integer(prefix + "context_length", 1 << 15);
  integer(prefix + "embedding_length", s.dim);
  integer(prefix + "block_count", s.layers);
  integer(prefix + "feed_forward_length", s.hidden);
  integer(prefix + "attention.head_count", s.heads);
  integer(prefix + "attention.head_count_kv", s.kv_heads);
  integer(prefix + "rope.dimension_count", s.head_dim);
  out.key(prefix + "attention.layer_norm_rms_epsilon", kF32);
  out.number(1e-5f);
  text("tokenizer.ggml.model", "gpt2");
  text("tokenizer.ggml.pre", "gpt-2");
  out.key("tokenizer.ggml.tokens", kArray);
  out.number(kString);
  out.number(static_cast<std::uint64_t>(s.vocab));
  for (int i = 0; i < s.vocab; ++i) out.string(fmt::format("w{}", i));
  out.key("tokenizer.ggml.token_type", kArray);
  out.number(kI32);
  out.number(static_cast<std::uint64_t>(s.vocab));
  for (int i = 0; i < s.vocab; ++i) out.number(std::int32_t{1});
  out.key("tokenizer.ggml.merges", kArray);
  out.number(kString);
  out.number(std::uint64_t{0});
}
constexpr int kKeys = 15;

void write_model(const std::filesystem::path& path, const Synthetic& model) {
  const std::vector<Tensor> tensors = tensors_of(model);
  Writer out(path);
  out.bytes("GGUF", 4);
  out.number(std::uint32_t{3});
  out.number(std::uint64_t{tensors.size()});
  out.number(std::uint64_t{kKeys});
  write_keys(out, model);
  std::size_t offset = 0;
  for (const Tensor& tensor : tensors) {
    out.string(tensor.name);
    out.number(std::uint32_t{tensor.rows > 0 ? 2u : 1u});
    out.number(tensor.cols);
    if (tensor.rows > 0) out.number(tensor.rows);
    out.number(static_cast<std::int32_t>(tensor.type));
    out.number(std::uint64_t{offset});
    offset = (offset + tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  out.pad();
  // One piece of random blocks, over and over: as good as new ones for the time that arithmetic takes.
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  const std::vector<std::byte> pieces[] = {random_blocks(model.type, kPiece), random_blocks(DType::q8_0, kPiece)};
  for (const Tensor& tensor : tensors) {
    if (tensor.rows == 0) {
      const std::vector<float> ones(static_cast<std::size_t>(tensor.cols), 1.0f);
      out.bytes(ones.data(), tensor.bytes());
    } else {
      const std::vector<std::byte>& piece = pieces[tensor.type == model.type ? 0 : 1];
      for (std::size_t left = tensor.bytes(); left > 0;) {
        const std::size_t part = std::min(left, piece.size());
        out.bytes(piece.data(), part);
        left -= part;
      }
    }
    out.pad();
  }
  out.finish();
}

// Rather than fill a disk that others write to.
void expect_space(const Synthetic& model, const std::filesystem::path& folder) {
  std::uintmax_t needed = 0;
  for (const Tensor& tensor : tensors_of(model)) needed += tensor.bytes();
  std::error_code ignored;
  const std::uintmax_t free = std::filesystem::space(folder, ignored).available;
  if (ignored || needed <= free) return;
  constexpr double kGiB = 1 << 30;
  throw Error(ErrorKind::io,
              fmt::format("{} takes {:.1f} GiB, but {} has {:.1f} GiB left (TMPDIR names another folder)", model.name,
                          static_cast<double>(needed) / kGiB, folder.string(), static_cast<double>(free) / kGiB));
}

}  // namespace

Synthetic parse_synthetic(std::string_view text) {
  const std::size_t first = text.find(':'), last = text.rfind(':');
  Synthetic model;
  if (first == std::string_view::npos || first == last || text.substr(0, first) != model.architecture) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("--synthetic: expected llama:SIZE:TYPE, like llama:135m:q4_1, got '{}'", text));
  }
  model.name = "synthetic " + std::string(text);
  model.shape = parse_shape(lower(text.substr(first + 1, last - first - 1)));
  model.type = parse_type(lower(text.substr(last + 1)));
  return model;
}

SyntheticFile::SyntheticFile(const Synthetic& model) {
  std::string name = (std::filesystem::temp_directory_path() / "bankml-bench-XXXXXX").string();
  file_ = FileDescriptor(::mkstemp(name.data()));
  if (!file_) throw Error(ErrorKind::io, "can't create a file in the temporary folder");
  ::unlink(name.c_str());
  expect_space(model, std::filesystem::temp_directory_path());
  write_model(path(), model);
}

std::filesystem::path SyntheticFile::path() const {
  return fmt::format("/proc/self/fd/{}", file_.get());
}

}  // namespace bankml::bench
