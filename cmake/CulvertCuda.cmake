# SPDX-License-Identifier: BSD-2-Clause
# The CUDA Toolkit, 12.0 or newer, where it is wanted (CULVERT_CUDA) and installed. Nothing of it is
# linked: nvcc compiles kernels, and the headers are compared with the library's own declarations.
#
# CULVERT_HAVE_NVCC         whether kernels are compiled for the GPU
# CULVERT_NVCC              the compiler driver
# CULVERT_NVCC_VERSION      its version, as 13.0
# CULVERT_CUDA_INCLUDE_DIR  the folder of cuda.h and cudaTypedefs.h, empty where there is none

set(CULVERT_HAVE_NVCC OFF)
set(CULVERT_NVCC_VERSION "")
string(TOUPPER "${CULVERT_CUDA}" culvert_cuda)
if(NOT culvert_cuda MATCHES "^(AUTO|ON|OFF|TRUE|FALSE|YES|NO|1|0)$")
  message(FATAL_ERROR "CULVERT_CUDA is '${CULVERT_CUDA}': give AUTO, ON or OFF")
endif()

if(culvert_cuda STREQUAL "AUTO" OR culvert_cuda)
  find_program(CULVERT_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(CULVERT_NVCC)
    execute_process(COMMAND "${CULVERT_NVCC}" --version OUTPUT_VARIABLE culvert_nvcc_says
                    ERROR_QUIET RESULT_VARIABLE culvert_nvcc_result)
    if(culvert_nvcc_result EQUAL 0 AND culvert_nvcc_says MATCHES "release ([0-9]+\\.[0-9]+)")
      set(CULVERT_NVCC_VERSION "${CMAKE_MATCH_1}")
    endif()
    if(CULVERT_NVCC_VERSION VERSION_GREATER_EQUAL 12.0)
      set(CULVERT_HAVE_NVCC ON)
    else()
      message(STATUS "nvcc '${CULVERT_NVCC_VERSION}' at ${CULVERT_NVCC} is older than 12.0: not used")
    endif()
    file(REAL_PATH "${CULVERT_NVCC}" culvert_nvcc_real)
    cmake_path(GET culvert_nvcc_real PARENT_PATH culvert_nvcc_bin)
  endif()
  find_path(CULVERT_CUDA_INCLUDE_DIR cudaTypedefs.h
            HINTS "${culvert_nvcc_bin}/../include" ENV CUDA_PATH ENV CUDA_HOME
            PATHS /usr/local/cuda PATH_SUFFIXES include)
  if(NOT culvert_cuda STREQUAL "AUTO" AND NOT (CULVERT_HAVE_NVCC AND CULVERT_CUDA_INCLUDE_DIR))
    message(FATAL_ERROR "CULVERT_CUDA is ON, but no CUDA Toolkit 12.0 or newer was found")
  endif()
else()
  unset(CULVERT_NVCC CACHE)
  unset(CULVERT_CUDA_INCLUDE_DIR CACHE)
endif()

if(NOT CULVERT_CUDA_INCLUDE_DIR)
  set(CULVERT_CUDA_INCLUDE_DIR "")
endif()
if(CULVERT_HAVE_NVCC)
  message(STATUS "CUDA Toolkit: nvcc ${CULVERT_NVCC_VERSION} at ${CULVERT_NVCC}, headers in ${CULVERT_CUDA_INCLUDE_DIR}")
else()
  message(STATUS "CUDA Toolkit: none used; kernels are built for the simulator only")
endif()
