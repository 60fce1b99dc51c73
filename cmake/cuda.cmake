# The CUDA backend: kernels/*.cu as the object library bankml_kernels, where BANKML_CUDA allows it and a CUDA compiler is found, and
# its host code in the device layer; elsewhere src/device/no_cuda.cpp stands in for it.
#
# Targets: machine code for compute capability 8.0 (which 8.6 runs too), 8.9 and 9.0a, and PTX for later ones.
set(BANKML_CUDA_ARCHITECTURES "80-real;89-real;90a-real;90-virtual" CACHE STRING "Targets of the CUDA backend, as CMAKE_CUDA_ARCHITECTURES")

function(bankml_find_cuda)
  if(BANKML_CUDA STREQUAL "OFF")
    return()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND BANKML_CUDA STREQUAL "ON")
    message(FATAL_ERROR "BANKML_CUDA is ON, but no CUDA compiler was found")
  endif()
  set(BANKML_HAS_CUDA ${CMAKE_CUDA_COMPILER} PARENT_SCOPE)
endfunction()

# Objects of kernels; what the assembler tells of each lies beside them, for bench/kernel_resources.
function(bankml_kernel_library name)
  add_library(${name} OBJECT ${ARGN})
  # -fmad=false: fused multiply-adds are written as fmaf, so that a GPU rounds as the host device does.
  target_compile_options(${name} PRIVATE -std=c++20 -fmad=false -Werror=all-warnings -Xptxas=-v -Xcompiler=-Wall,-Wextra,-Wno-unused-parameter)
  set_target_properties(${name} PROPERTIES RULE_LAUNCH_COMPILE "${PROJECT_SOURCE_DIR}/cmake/keep_resources <OBJECT>")
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/kernels/cuda ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
endfunction()

file(GLOB kernel_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*.cu)
if(kernel_sources)
  bankml_find_cuda()
endif()
if(BANKML_HAS_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${BANKML_CUDA_ARCHITECTURES})
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  # The standard as an option: CMake 3.25 doesn't know that this nvcc has C++20, and adds nothing.
  set(CMAKE_CUDA_STANDARD_REQUIRED OFF)
  bankml_kernel_library(bankml_kernels ${kernel_sources})
endif()

# Adds the backend, or what stands in for it, to the device layer. The CUDA runtime is linked in: one binary runs everywhere.
function(bankml_cuda_backend layer)
  if(NOT BANKML_HAS_CUDA)
    target_sources(${layer} PRIVATE ${PROJECT_SOURCE_DIR}/src/device/no_cuda.cpp)
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cuda/*.cpp)
  # Objects, since kernels and host code name one another.
  target_sources(${layer} PRIVATE ${sources} $<TARGET_OBJECTS:bankml_kernels>)
  set_property(SOURCE ${sources} APPEND PROPERTY INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/kernels/cuda ${PROJECT_SOURCE_DIR})
  target_link_libraries(${layer} PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS})
endfunction()
