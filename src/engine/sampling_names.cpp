#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string>
#include <utility>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"
#include "bankml/engine/sampling.hpp"
#include "base/printable.hpp"

namespace bankml {
namespace {

// Each works on the whole vocabulary for every token, and some hold memory for it: a list without an end would stop
// everybody's answers.
constexpr std::size_t kMostSamplers = 32;

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

// The samplers of a list in the order of their names.
class SamplerList {
 public:
  void add(std::optional<SamplerKind> kind, std::string_view name) {
    if (!kind) {
      if (unknown_++ == 0) first_unknown_ = name;
      return;
    }
    if (kinds_.size() == kMostSamplers) {
      throw Error(ErrorKind::invalid_request,
                  "samplers: expected a list of at most " + std::to_string(kMostSamplers) + ", got a longer one");
    }
    kinds_.push_back(*kind);
  }
  // One line in the log, whatever the list holds: these are a client's bytes.
  std::vector<SamplerKind> take() && {
    if (unknown_ > 0) {
      log_warning("samplers: {} unknown and left out, the first is {}", unknown_, printable(first_unknown_));
    }
    return std::move(kinds_);
  }

 private:
  std::vector<SamplerKind> kinds_;
  std::size_t unknown_ = 0;
  std::string_view first_unknown_;
};

}  // namespace

std::vector<SamplerKind> SamplingParams::default_samplers() {
  using enum SamplerKind;
  return {penalties, dry, top_n_sigma, top_k, typical_p, top_p, min_p, xtc, temperature};
}

std::vector<SamplerKind> parse_sampler_names(std::span<const std::string> names) {
  SamplerList list;
  for (const std::string& name : names) list.add(find_name(name), name);
  return std::move(list).take();
}

std::vector<SamplerKind> parse_sampler_letters(std::string_view letters) {
  SamplerList list;
  for (const char& letter : letters) {
    const auto known =
        std::find_if(kNames.begin(), kNames.end(), [=](const SamplerName& n) { return n.letter == letter; });
    list.add(known == kNames.end() ? std::nullopt : std::optional(known->kind), {&letter, 1});
  }
  return std::move(list).take();
}

std::string_view sampler_name(SamplerKind kind) noexcept {
  for (const SamplerName& known : kNames) {
    if (known.kind == kind) return known.name;
  }
  return {};
}

}  // namespace bankml
