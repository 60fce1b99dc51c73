#pragma once
#include <string>

namespace bankml {

// Undoes the spaces that word tokenizers put around punctuation (docs/tokenizers.md, section 5.2): the one before ? ! .
// and , then both around a lone apostrophe, then the one before 's 'm 're 've.
void clean_spaces(std::string& text);

}  // namespace bankml
