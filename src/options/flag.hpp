#pragma once
// The table of flags: one row holds names, environment variable, help and what the flag does. Parsing and --help read
// it.
#include <string>
#include <string_view>
#include <vector>

#include "bankml/options/options.hpp"

namespace bankml {

struct Flag {
  std::vector<std::string_view> names = {};      // the last one is the name used in messages and in Options::given
  std::vector<std::string_view> off_names = {};  // of an on/off flag: "--no-x"
  std::string_view value = {};                   // placeholder of the value in --help; "": the flag takes none
  std::string_view env = {};                     // "": none
  std::string_view help = {};
  // Takes the value; an on/off flag and a flag without a value get "1" or "0".
  void (*set)(Options& options, const std::string& value) = nullptr;
  bool repeatable = false;          // each use adds; else the last use wins
  std::string_view no_effect = {};  // why the flag is taken and changes nothing; "": it acts
  std::string_view refused = {};    // why the flag can't be served; "": it can

  std::string_view name() const { return names.back(); }
  bool on_off() const { return !off_names.empty(); }
};

struct FlagSection {
  std::string_view title;
  std::vector<Flag> flags;
};

FlagSection general_flags();
FlagSection device_flags();
FlagSection model_flags();
FlagSection cache_flags();
FlagSection http_flags();
FlagSection service_flags();
FlagSection chat_flags();
FlagSection sampling_flags();
FlagSection log_flags();
FlagSection placement_flags();    // where a computation runs: taken without effect
FlagSection unsupported_flags();  // of features that are not built

const std::vector<FlagSection>& flag_sections();

}  // namespace bankml
