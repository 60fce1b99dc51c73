#include "model/file_type.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace bankml {
namespace {

// Ids of mixes made of types that bankmld computes with; names recorded from llama-server b11192.
constexpr std::pair<std::uint64_t, std::string_view> kNames[] = {{0, "all F32"},
                                                                 {1, "F16"},
                                                                 {2, "Q4_0"},
                                                                 {3, "Q4_1"},
                                                                 {7, "Q8_0"},
                                                                 {8, "Q5_0"},
                                                                 {9, "Q5_1"},
                                                                 {10, "Q2_K - Medium"},
                                                                 {11, "Q3_K - Small"},
                                                                 {12, "Q3_K - Medium"},
                                                                 {13, "Q3_K - Large"},
                                                                 {14, "Q4_K - Small"},
                                                                 {15, "Q4_K - Medium"},
                                                                 {16, "Q5_K - Small"},
                                                                 {17, "Q5_K - Medium"},
                                                                 {18, "Q6_K"},
                                                                 {21, "Q2_K - Small"},
                                                                 {25, "IQ4_NL - 4.5 bpw"},
                                                                 {30, "IQ4_XS - 4.25 bpw"},
                                                                 {32, "BF16"}};

}  // namespace

std::string file_type_name(const GgufFile& file) {
  if (const auto id = file.unsigned_value("general.file_type")) {
    for (const auto& [known, name] : kNames) {
      if (known == *id) return std::string(name);
    }
    return "unknown, may not work";
  }
  if (file.tensors().empty()) return "unknown, may not work";
  std::map<DType, int> count;
  for (const GgufTensor& tensor : file.tensors()) ++count[tensor.type];
  const auto most =
      std::max_element(count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("(guessed) {}", dtype_info(most->first).name);
}

}  // namespace bankml
