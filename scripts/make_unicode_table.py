#!/usr/bin/env python3
"""Writes src/text/unicode_table.inc: the general category (first letter) of every code point, as a two-stage table.

Token ids depend on these categories, so the Unicode version is the one that the models' tokenizers are matched against
(15.1, docs/tokenizers.md section 7), not the newest. To renew:

    python3 -m venv venv && venv/bin/pip install unicodedata2==15.1.0
    venv/bin/python scripts/make_unicode_table.py > src/text/unicode_table.inc
"""
import sys
import textwrap

import unicodedata2

VERSION = "15.1.0"
BLOCK = 256
CLASSES = "LNPMS"  # 1 to 5, number n is bit n - 1 of CharClass in src/text/unicode.hpp; 0: none of them


def category(code):
    return CLASSES.find(unicodedata2.category(chr(code))[0]) + 1


def array(kind, name, values):
    lines = textwrap.wrap(", ".join(map(str, values)), 150)
    return f"constexpr std::{kind} {name}[] = {{\n" + "\n".join(lines).replace(", ", ",") + "\n};\n"


def main():
    if unicodedata2.unidata_version != VERSION:
        sys.exit(f"expected Unicode {VERSION}, this unicodedata2 has {unicodedata2.unidata_version}")
    last = max(code for code in range(0x110000) if category(code))
    index, blocks = [], {}
    for start in range(0, last + 1, BLOCK):
        block = tuple(category(code) for code in range(start, start + BLOCK))
        index.append(blocks.setdefault(block, len(blocks)))
    packed = [low | high << 4 for block in blocks for low, high in zip(block[::2], block[1::2])]
    print(f"// Unicode {VERSION} general categories, written by scripts/make_unicode_table.py: not to be edited by hand.")
    print("// kBlockOf[code / kBlockSize] is a block of kCategories, which holds two code points a byte, the lower in the low half.")
    print(f"constexpr std::uint32_t kBlockSize = {BLOCK};")
    print(f"constexpr std::uint32_t kTableEnd = 0x{len(index) * BLOCK:x};  // above: all other")
    print(array("uint8_t" if len(blocks) < 256 else "uint16_t", "kBlockOf", index), end="")
    print(array("uint8_t", "kCategories", packed), end="")


main()
