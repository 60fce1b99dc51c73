#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "bankml/base/log.hpp"
#include "bankml/engine/sampling.hpp"
#include "base/printable.hpp"

namespace bankml {
namespace {

struct SamplerName {
  SamplerKind kind;
  char letter;
  std::string_view name;
};

constexpr std::array<SamplerName, 11> kNames = {{
    {SamplerKind::penalties, 'e', "penalties"},
    {SamplerKind::dry, 'd', "dry"},
    {SamplerKind::top_n_sigma, 's', "top_n_sigma"},
    {SamplerKind::top_k, 'k', "top_k"},
    {SamplerKind::typical_p, 'y', "typ_p"},
    {SamplerKind::top_p, 'p', "top_p"},
    {SamplerKind::min_p, 'm', "min_p"},
    {SamplerKind::xtc, 'x', "xtc"},
    {SamplerKind::temperature, 't', "temperature"},
    {SamplerKind::infill, 'i', "infill"},
    {SamplerKind::adaptive_p, 'a', "adaptive_p"},
}};

constexpr std::array<std::pair<std::string_view, SamplerKind>, 3> kOtherNames = {{
    {"nucleus", SamplerKind::top_p},
    {"temp", SamplerKind::temperature},
    {"typ", SamplerKind::typical_p},
}};

// The canonical spelling, or with '-' for each '_', or with nothing for it.
bool spells(std::string_view given, std::string_view canonical) {
  std::string dashes(canonical), joined(canonical);
  std::replace(dashes.begin(), dashes.end(), '_', '-');
  std::erase(joined, '_');
  return given == canonical || given == dashes || given == joined;
}

std::optional<SamplerKind> find_name(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const SamplerName& known : kNames) {
    if (spells(lower, known.name)) return known.kind;
  }
  for (const auto& [other, kind] : kOtherNames) {
    if (lower == other) return kind;
  }
  return std::nullopt;
}

// One line a request, whatever it holds: these are a client's bytes.
void warn_of_unknown(std::span<const std::string_view> names) {
  if (names.empty()) return;
  log_warning("samplers: {} unknown and left out, the first is {}", names.size(), printable(names.front()));
}

}  // namespace

std::vector<SamplerKind> SamplingParams::default_samplers() {
  using enum SamplerKind;
  return {penalties, dry, top_n_sigma, top_k, typical_p, top_p, min_p, xtc, temperature};
}

std::vector<SamplerKind> parse_sampler_names(std::span<const std::string> names) {
  std::vector<SamplerKind> kinds;
  std::vector<std::string_view> unknown;
  for (const std::string& name : names) {
    if (const auto kind = find_name(name)) {
      kinds.push_back(*kind);
    } else {
      unknown.push_back(name);
    }
  }
  warn_of_unknown(unknown);
  return kinds;
}

std::vector<SamplerKind> parse_sampler_letters(std::string_view letters) {
  std::vector<SamplerKind> kinds;
  std::vector<std::string_view> unknown;
  for (const char& letter : letters) {
    const auto known =
        std::find_if(kNames.begin(), kNames.end(), [=](const SamplerName& n) { return n.letter == letter; });
    if (known != kNames.end()) {
      kinds.push_back(known->kind);
    } else {
      unknown.emplace_back(&letter, 1);
    }
  }
  warn_of_unknown(unknown);
  return kinds;
}

std::string_view sampler_name(SamplerKind kind) noexcept {
  for (const SamplerName& known : kNames) {
    if (known.kind == kind) return known.name;
  }
  return {};
}

}  // namespace bankml
