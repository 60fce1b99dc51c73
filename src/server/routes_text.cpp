// POST /tokenize and /detokenize (docs/http-api.md 6).
#include <fmt/core.h>

#include <algorithm>
#include <boost/json/array.hpp>

#include "bankml/base/utf8.hpp"
#include "server/fields.hpp"
#include "server/prompt.hpp"
#include "server/routes.hpp"

namespace bankml {
namespace {

void check_token(TokenId token, const Tokenizer& tokenizer) {
  if (tokenizer.valid(token)) return;
  throw Error(ErrorKind::internal,
              fmt::format("token id {} is not in the vocabulary of {} tokens", token, tokenizer.size()));
}

bool flag(const boost::json::object& body, std::string_view name, bool otherwise) {
  const auto* value = Fields(body).find(name);
  return value != nullptr && value->is_bool() ? value->get_bool() : otherwise;
}

// The text of a token, or its bytes where they are not a text by themselves.
boost::json::value piece_value(std::string_view piece) {
  if (is_valid_utf8(piece)) return boost::json::string_view(piece.data(), piece.size());
  boost::json::array bytes;
  for (const char byte : piece) bytes.emplace_back(static_cast<unsigned char>(byte));
  return bytes;
}

}  // namespace

Reply post_tokenize(const RouteContext& context, const Request& request) {
  const Tokenizer& tokenizer = *context.app.tokenizer;
  const boost::json::object body = parse_body(request.body);
  TokenIds tokens;
  if (const auto* content = body.if_contains("content")) {
    tokens = tokenize_mixed(*content, tokenizer, flag(body, "add_special", false), flag(body, "parse_special", true));
  }
  boost::json::array out;
  out.reserve(tokens.size());
  const bool with_pieces = flag(body, "with_pieces", false);
  for (const TokenId token : tokens) {
    if (with_pieces) {
      check_token(token, tokenizer);
      out.push_back(boost::json::object{{"id", token}, {"piece", piece_value(tokenizer.piece(token, true))}});
    } else {
      out.emplace_back(token);
    }
  }
  return json_response(boost::json::object{{"tokens", std::move(out)}});
}

Reply post_detokenize(const RouteContext& context, const Request& request) {
  const Tokenizer& tokenizer = *context.app.tokenizer;
  const boost::json::object body = parse_body(request.body);
  std::string text;
  if (const auto* tokens = body.if_contains("tokens")) {
    if (!tokens->is_array()) {
      throw Error(ErrorKind::internal,
                  fmt::format("field 'tokens': expected an array of token ids, got {}", json_type_name(*tokens)));
    }
    TokenIds ids;
    for (const auto& element : tokens->get_array()) {
      const auto id = as_integer(element);
      if (!id) {
        throw Error(ErrorKind::internal,
                    fmt::format("field 'tokens': expected token ids in the array, got {}", json_type_name(element)));
      }
      ids.push_back(static_cast<TokenId>(std::clamp<std::int64_t>(*id, -1, Fields::kMaxInt)));
      check_token(ids.back(), tokenizer);
    }
    text = tokenizer.decode(ids, true);
  }
  return json_response(boost::json::object{{"content", std::move(text)}});
}

}  // namespace bankml
