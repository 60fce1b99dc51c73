# Compiler settings shared by all targets of the project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(NOT multi_config AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(bankml_settings INTERFACE)
# Which tokens come out depends on every rounding: a fused multiply-add is written as std::fma, never chosen by the compiler.
target_compile_options(bankml_settings INTERFACE -ffp-contract=off -fno-fast-math)
target_compile_options(bankml_settings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # gcc 12 finds overlaps in std::string at -O3 that can't be (its bug 105329).
  target_compile_options(bankml_settings INTERFACE $<$<CONFIG:Release>:-Wno-restrict>)
endif()
if(BANKML_WERROR)
  target_compile_options(bankml_settings INTERFACE -Werror)
endif()

if(BANKML_SANITIZE)
  add_compile_options(-fsanitize=${BANKML_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${BANKML_SANITIZE})
  if(BANKML_SANITIZE MATCHES "thread")
    add_compile_options(-Wno-tsan)  # Asio fences, which ThreadSanitizer does not model and gcc warns of
  endif()
endif()
