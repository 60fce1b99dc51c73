#pragma once

namespace bankml {

// Tokens of a context at most: each forward pass copies a table with an entry for every block of it.
inline constexpr int kMaxContext = 1 << 24;

}  // namespace bankml
