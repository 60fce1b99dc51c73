#pragma once
// Turning a stream of token pieces into text that never ends inside a character.
#include <optional>
#include <string>
#include <string_view>

namespace bankml {

// One for each answer that is being generated; not for use by several threads at once.
class StreamDecoder {
 public:
  // Adds the bytes of a token. Gives the text that may be emitted now: everything that was held back and this piece
  // (maybe ""), or nullopt if the text so far ends inside a UTF-8 character: then all of this piece is held back
  // (docs/http-api.md, section 9). Bytes that can't be completed to a character are passed on as they are.
  std::optional<std::string> push(std::string_view piece);

  // What is held back at the end of the answer: complete characters, if any, and the beginning of one. Nothing is held
  // after.
  std::string flush();

 private:
  std::string held_;
};

}  // namespace bankml
