#pragma once
// The prompt of POST /infill: what stands around a place in a file, in the order in which models learn it
// (docs/http-api.md 16).
#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "bankml/text/tokenizer.hpp"
#include "server/prompt.hpp"

namespace bankml {

struct InfillText {
  struct File {
    std::string name, text;
  };
  std::string prefix, suffix;  // around the cursor
  std::string prompt;          // between prefix and cursor
  std::vector<File> extra;     // other files of the project
};

// How much of each part is kept: the end of what comes before the cursor, the start of what comes after it.
struct InfillLimits {
  int batch = 0;
  std::int64_t context = 0;  // of a slot
  int n_predict = -1;        // the server's default
};

// Throws Error(unsupported) naming the tokens that the vocabulary lacks.
void check_can_infill(const Tokenizer& tokenizer);

// Throws Error(internal) without a prefix or suffix, as llama-server, and Error(invalid_request) for extra files of the
// wrong form.
InfillText parse_infill(const boost::json::object& body);

// `suffix_first`: the order in which some models were trained. The vocabulary has what infill needs.
TokenIds infill_prompt(const InfillText& text, const Tokenizer& tokenizer, const InfillLimits& limits,
                       bool suffix_first);

}  // namespace bankml
