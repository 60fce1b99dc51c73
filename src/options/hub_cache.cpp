#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "bankml/base/error.hpp"
#include "bankml/options/options.hpp"
#include "options/values.hpp"

namespace bankml {
namespace {

namespace fs = std::filesystem;

fs::path cache_root(const Environment& environment) {
  struct Place {
    const char* variable;
    const char* below;
  };
  constexpr Place kPlaces[] = {{"LLAMA_CACHE", ""},
                               {"HF_HUB_CACHE", ""},
                               {"HUGGINGFACE_HUB_CACHE", ""},
                               {"HF_HOME", "hub"},
                               {"XDG_CACHE_HOME", "huggingface/hub"},
                               {"HOME", ".cache/huggingface/hub"}};
  for (const Place& place : kPlaces) {
    const char* value = environment(place.variable);
    if (value && *value) return fs::path(value) / place.below;
  }
  throw Error(ErrorKind::not_found, "no hub cache: neither LLAMA_CACHE, HF_HUB_CACHE, HF_HOME nor HOME is set");
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// The model files of a snapshot by name: of a split model the first part only, no projectors.
std::vector<std::string> model_files(const fs::path& snapshot) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(snapshot)) {
    const std::string name = entry.path().lexically_relative(snapshot).string();
    const bool later_part = name.find("-of-") != std::string::npos && name.find("-00001-of-") == std::string::npos;
    if (name.ends_with(".gguf") && name.find("mmproj") == std::string::npos && !later_part) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> file_of_quant(const std::vector<std::string>& names, const std::string& quant) {
  for (const std::string& name : names) {
    if (upper(name).find(upper(quant)) != std::string::npos) return name;
  }
  return std::nullopt;
}

std::string trimmed_line(std::string text) {
  text.erase(std::find_if(text.begin(), text.end(), [](unsigned char c) { return std::isspace(c) != 0; }), text.end());
  return text;
}

}  // namespace

std::string find_cached_model(std::string_view repository, std::string_view file, const Environment& environment) {
  const std::size_t colon = repository.find(':');
  const std::string_view name = repository.substr(0, colon);
  const std::string quant(colon == std::string_view::npos ? "" : repository.substr(colon + 1));
  const std::size_t slash = name.find('/');
  const bool nested = name.find("..") != name.npos || (slash != name.npos && name.find('/', slash + 1) != name.npos);
  if (slash == name.npos || slash == 0 || slash + 1 == name.size() || nested) {
    throw Error(ErrorKind::invalid_request, fmt::format("--hf-repo: expected USER/NAME[:QUANT], got '{}'", repository));
  }
  const fs::path folder =
      cache_root(environment) / fmt::format("models--{}--{}", name.substr(0, slash), name.substr(slash + 1));
  const fs::path reference = folder / "refs" / "main";
  if (!fs::is_regular_file(reference)) {
    throw Error(ErrorKind::not_found,
                fmt::format("--hf-repo: '{}' is not in the local cache ({} is missing), and nothing is downloaded",
                            repository, reference.string()));
  }
  const fs::path snapshot = folder / "snapshots" / trimmed_line(read_text_file(reference.string()));
  if (!fs::is_directory(snapshot)) {
    throw Error(ErrorKind::not_found, fmt::format("--hf-repo: the snapshot {} is missing", snapshot.string()));
  }
  if (!file.empty()) {
    if (fs::exists(snapshot / file)) return (snapshot / file).string();
    throw Error(ErrorKind::not_found, fmt::format("--hf-file: no '{}' in {}", file, snapshot.string()));
  }

  const std::vector<std::string> names = model_files(snapshot);
  std::optional<std::string> chosen;
  if (!quant.empty()) {
    chosen = file_of_quant(names, quant);
  } else {
    chosen = file_of_quant(names, "Q4_K_M");
    if (!chosen) chosen = file_of_quant(names, "Q8_0");
    if (!chosen && !names.empty()) chosen = names.front();
  }
  if (!chosen) {
    throw Error(ErrorKind::not_found, fmt::format("--hf-repo: no model file {}in {}",
                                                  quant.empty() ? "" : "of " + quant + " ", snapshot.string()));
  }
  return (snapshot / *chosen).string();
}

}  // namespace bankml
