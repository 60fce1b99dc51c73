#pragma once
// The name of general.file_type, the mix of tensor types that a model was quantised to.
#include <string>

#include "bankml/model/gguf.hpp"

namespace bankml {

// As llama-server b11192 shows it in /props: "Q4_1", "Q4_K - Medium". Without the key: "(guessed)" and the type of most
// tensors.
std::string file_type_name(const GgufFile& file);

}  // namespace bankml
