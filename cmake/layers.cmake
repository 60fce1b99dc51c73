# bankml_layer(NAME [LINK targets...] [PRIVATE_LINK targets...] [EXCLUDE regex]): the static library of one layer, from all of
# src/NAME but the files whose path matches the expression.
# A file called *_avx2.cpp or *_avx512.cpp is compiled for that instruction set and is reached through run-time dispatch only.
function(bankml_layer name)
  cmake_parse_arguments(arg "" "EXCLUDE" "LINK;PRIVATE_LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp)
  if(arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${arg_EXCLUDE}")
  endif()
  bankml_isa_flags(${sources})
  add_library(bankml_${name} STATIC ${sources})
  target_include_directories(bankml_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(bankml_${name} PUBLIC ${arg_LINK} PRIVATE bankml_settings ${arg_PRIVATE_LINK})
endfunction()

function(bankml_isa_flags)
  foreach(source ${ARGN})
    if(source MATCHES "_avx2\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    elseif(source MATCHES "_avx512\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni")
    endif()
  endforeach()
endfunction()
