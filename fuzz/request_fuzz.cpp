// Bodies of generating requests: whatever they hold, they become typed requests or Errors.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "bankml/base/error.hpp"
#include "server/completion_request.hpp"
#include "server/fields.hpp"
#include "server/json_writer.hpp"
#include "server/prompt.hpp"
#include "server/shapes.hpp"

namespace {

// Single bytes and one end token: enough for every path.
const bankml::Tokenizer& tokenizer() {
  static const bankml::Tokenizer instance = [] {
    bankml::VocabularySource source;
    source.model = "llama";
    source.tokens = {"<unk>", "<s>", "</s>"};
    source.types = {2, 3, 3};
    for (int byte = 0; byte < 256; ++byte) {
      static constexpr std::string_view kHex = "0123456789ABCDEF";
      source.tokens.push_back(std::string("<0x") + kHex[static_cast<std::size_t>(byte >> 4)] +
                              kHex[static_cast<std::size_t>(byte & 15)] + ">");
      source.types.push_back(static_cast<int>(bankml::TokenType::byte));
    }
    source.scores.assign(source.tokens.size(), 0.0f);
    source.bos = 1;
    source.eos = 2;
    return bankml::Tokenizer(std::move(source));
  }();
  return instance;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bankml::ServerOptions options;
  constexpr int kSlots = 4;
  try {
    const boost::json::object body = bankml::parse_body({reinterpret_cast<const char*>(data), size});
    bankml::to_json(body);
    const auto request = bankml::parse_completion_request(body, options, tokenizer(), kSlots);
    bankml::to_json(bankml::generation_settings(request.params, request.echoed, false));
    bankml::parse_prompts(bankml::Fields(body).find("prompt"), tokenizer());
  } catch (const bankml::Error&) {
  }
  return 0;
}
