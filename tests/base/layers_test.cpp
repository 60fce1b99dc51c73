// The layers form a line, and a file includes headers of its own layer and of those to its left: read off the include
// lines.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace bankml {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 8> kLayers = {"base",   "text",   "device",  "model",
                                                     "engine", "server", "options", "main"};

std::optional<std::size_t> layer_index(std::string_view name) {
  const auto found = std::find(kLayers.begin(), kLayers.end(), name);
  if (found == kLayers.end()) return std::nullopt;
  return static_cast<std::size_t>(found - kLayers.begin());
}

// The layer named by an include line of the project, if it is one: "bankml/LAYER/x.hpp" or "LAYER/x.hpp".
std::optional<std::string> included_layer(const std::string& line) {
  static const std::regex pattern(R"rx(^\s*#\s*include\s*"(?:bankml/)?([a-z_]+)/.*")rx");
  std::smatch match;
  if (!std::regex_search(line, match, pattern)) return std::nullopt;
  return match[1].str();
}

// Include lines of the files below `root`/LAYER that are not allowed there, as "file: line".
std::vector<std::string> violations(const fs::path& root, std::size_t& files) {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".hpp" && extension != ".cpp") continue;
    ++files;
    const std::string own_name = entry.path().lexically_relative(root).begin()->string();
    const std::optional<std::size_t> own = layer_index(own_name);
    if (!own) found.push_back(entry.path().string() + ": not in the folder of a layer");
    std::ifstream in(entry.path());
    for (std::string line; own && std::getline(in, line);) {
      const std::optional<std::string> name = included_layer(line);
      if (!name || (own_name == "device" && *name == "kernels")) continue;  // kernels are the device layer's own
      const std::optional<std::size_t> index = layer_index(*name);
      if (!index || *index > *own) found.push_back(entry.path().string() + ": " + line);
    }
  }
  return found;
}

TEST(Layers, IncludeNothingToTheirRight) {
  const fs::path source(BANKML_SOURCE_DIR);
  for (const fs::path& root : {source / "include" / "bankml", source / "src"}) {
    std::size_t files = 0;
    EXPECT_EQ(violations(root, files), std::vector<std::string>{}) << root;
    EXPECT_GT(files, 0u) << root;
  }
}

TEST(Layers, AnIncludeToTheRightIsFound) {
  EXPECT_EQ(included_layer("#include \"bankml/engine/engine.hpp\""), "engine");
  EXPECT_EQ(included_layer("#include \"device/cpu/ops.hpp\""), "device");
  EXPECT_EQ(included_layer("#include <boost/json/object.hpp>"), std::nullopt);
  EXPECT_GT(layer_index("engine"), layer_index("model"));
}

}  // namespace
}  // namespace bankml
